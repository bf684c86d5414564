# Tries: taking all memory with matrices
# End: memory | finished | left
# Cases: <= 1
# Tests: -
total <- function(xs) sum(xs)
hoard <- list()
for (i in 1:40) hoard[[i]] <- matrix(runif(2^21), ncol = 2)
