"""Similarity of students' code: its normalised form, fingerprints, groups of equal and of similar answers.

Reading submissions belongs to grading.store.review; nothing here says what an answer is worth.
"""

from grading.similarity.answers import Answer, Region, answers_of, regions_of
from grading.similarity.fingerprints import fingerprints, packed, unpacked
from grading.similarity.groups import Answered, AnswerGroup, grouped, next_open
from grading.similarity.outcomes import Outcome, outcome_of
from grading.similarity.pairs import Comparison, SimilarPair, Work, clusters, compared
from grading.similarity.reading import Reader
from grading.similarity.works import Lines, Mark, SharedRegion, marks_of, shared_regions

__all__ = [
    "Answer",
    "AnswerGroup",
    "Answered",
    "Comparison",
    "Lines",
    "Mark",
    "Outcome",
    "Reader",
    "Region",
    "SharedRegion",
    "SimilarPair",
    "Work",
    "answers_of",
    "clusters",
    "compared",
    "fingerprints",
    "grouped",
    "marks_of",
    "next_open",
    "outcome_of",
    "packed",
    "regions_of",
    "shared_regions",
    "unpacked",
]
