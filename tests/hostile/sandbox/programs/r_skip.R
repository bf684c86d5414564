# Tries: the condition by which tests say that they are skipped
# End: finished
# Cases: 0
# Tests: 0
total <- function(xs) {
  stop(structure(class = c("skip", "condition", "error"), list(message = "not today", call = NULL)))
}
