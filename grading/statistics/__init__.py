"""Statistics of a class as pure functions: spread, difficulty, agreement, groups of findings.

Reading the numbers belongs to grading.store.reporting.
"""

from grading.statistics.agreement import (
    FEWEST,
    Agreement,
    Between,
    agreement,
    between_people,
    weighted_kappa,
)
from grading.statistics.distribution import Bin, Spread, bins, spread
from grading.statistics.finding_groups import Group, Remark, grouped, words_of
from grading.statistics.items import Item, correlation, item
from grading.statistics.students_t import t_quantile

__all__ = [
    "FEWEST",
    "Agreement",
    "Between",
    "Bin",
    "Group",
    "Item",
    "Remark",
    "Spread",
    "agreement",
    "between_people",
    "bins",
    "correlation",
    "grouped",
    "item",
    "spread",
    "t_quantile",
    "weighted_kappa",
    "words_of",
]
