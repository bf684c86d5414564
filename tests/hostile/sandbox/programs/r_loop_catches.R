# Tries: an endless loop that catches interrupts and errors
# End: too long | finished
# Cases: <= 1
# Tests: -
# Seconds: 1.5
total <- function(xs) sum(xs)
repeat tryCatch(repeat {}, interrupt = function(i) NULL, error = function(e) NULL, finally = repeat {})
