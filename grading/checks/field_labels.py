"""Labels in the editor for fields that several kinds of checks share."""

from __future__ import annotations

from grading.domain.messages import define_message

ALL_OF = define_message("field.all_of", "All of these")
ANY_OF = define_message("field.any_of", "At least one of these")
NAMES = define_message("field.names", "Names")
VALUES = define_message("field.values", "Values")
REL_TOL = define_message("field.rel_tol", "Relative tolerance")
ABS_TOL = define_message("field.abs_tol", "Absolute tolerance")
AT_LEAST = define_message("field.at_least", "At least")
AT_MOST = define_message("field.at_most", "At most")
OF = define_message("field.of", "Applies to")
WORDS = define_message("field.words", "Minimum number of words in each")
SHOW = define_message("field.show", "Students see for a failed test")
HIDDEN = define_message("field.hidden", "Hidden from students")
