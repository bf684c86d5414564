# Tries: files that R reads at its start
# End: finished
# Cases: 0
# Tests: 0
total <- function(xs) NULL
