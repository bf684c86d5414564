# Tries: a fork bomb by parallel
# End: processes | finished | too long | left | memory
# Cases: <= 1
# Tests: -
# Seconds: 3
total <- function(xs) sum(xs)
for (i in 1:10) try(parallel::mcparallel({
  for (j in 1:8) try(parallel::mcparallel(Sys.sleep(5)), silent = TRUE)
  Sys.sleep(5)
}), silent = TRUE)
