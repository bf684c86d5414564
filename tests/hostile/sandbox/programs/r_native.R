# Tries: a crash in native code, and a stack without an end
# End: left | finished | memory
# Cases: 0
# Tests: -
f <- function(n) f(n + 1)
options(expressions = 500000)
try(f(1), silent = TRUE)
tools::pskill(Sys.getpid(), 11)
