# Tries: finalizers that leave with success, or never end, when R ends
# End: finished | too long | left
# Cases: 1
# Tests: 1
total <- function(xs) sum(xs)
keep <- new.env()
reg.finalizer(keep, function(e) repeat {}, onexit = TRUE)
.Last <- function() repeat {}
