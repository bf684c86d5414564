"""How far grades can be trusted: samples marked blind and what they prove, second opinions, trials of models.

Formulas belong to grading.statistics, releasing to grading.store.grades.
"""

from __future__ import annotations
