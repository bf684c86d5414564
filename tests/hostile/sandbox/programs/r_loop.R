# Tries: an endless loop in R after an honest solution
# End: finished | too long
# Cases: <= 1
# Tests: -
total <- function(xs) sum(xs)
repeat {}
