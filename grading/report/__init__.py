"""From evidence, results and people's changes to points: the only place with formulas."""

from grading.report.changing import changed
from grading.report.combining import combine, valid
from grading.report.settling import Settled, counted, settled

__all__ = ["Settled", "changed", "combine", "counted", "settled", "valid"]
