# Tries: endless output, and one line of 30 MB
# End: output | finished | too long | memory
# Cases: <= 1
# Tests: -
total <- function(xs) sum(xs)
cat(strrep("x", 3e7))
repeat cat(strrep("garbage \033[2J", 1000), "\n")
