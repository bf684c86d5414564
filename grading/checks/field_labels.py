"""Labels in the editor for fields that several kinds of checks share."""

from __future__ import annotations

from grading.domain.messages import define_message

ALL_OF = define_message("field.all_of", "All of these")
ANY_OF = define_message("field.any_of", "One of these is enough")
NAMES = define_message("field.names", "Names")
VALUES = define_message("field.values", "Values")
REL_TOL = define_message("field.rel_tol", "Relative tolerance")
ABS_TOL = define_message("field.abs_tol", "Absolute tolerance")
AT_LEAST = define_message("field.at_least", "At least so many")
AT_MOST = define_message("field.at_most", "At most so many")
OF = define_message("field.of", "What is meant")
WORDS = define_message("field.words", "Words of each, at least")
SHOW = define_message("field.show", "Students see of a failed test")
HIDDEN = define_message("field.hidden", "Hidden from students")
