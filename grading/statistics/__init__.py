"""What a class's gradings say together: spread, difficulty, agreement, findings. Numbers in, numbers out."""

from grading.statistics.agreement import (
    FEWEST,
    Agreement,
    Between,
    agreement,
    between_people,
    weighted_kappa,
)
from grading.statistics.items import Item, correlation, item
from grading.statistics.spread import Bin, Spread, bins, spread
from grading.statistics.students_t import t_quantile
from grading.statistics.wording import Group, Remark, grouped, words_of

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
