"""Points from evidence, results and people's changes: the only place with formulas.

Storing a grade belongs to grading.store.grades, comparing those of a class to grading.statistics.
"""

from grading.scoring.changes import changed
from grading.scoring.combine import combine, valid
from grading.scoring.final_score import Settled, counted, settled

__all__ = ["Settled", "changed", "combine", "counted", "settled", "valid"]
