"""From evidence, results and people's changes to points: the only place with formulas."""

from grading.scoring.changes import changed
from grading.scoring.combine import combine, valid
from grading.scoring.final_score import Settled, counted, settled

__all__ = ["Settled", "changed", "combine", "counted", "settled", "valid"]
