# Tries: killing its parent, process 1, everyone and a process of this machine
# End: left | finished | too long
# Cases: <= 1
# Tests: -
total <- function(xs) sum(xs)
if (file.exists("/proc/@SENTINEL@/comm")) {
  print("@REACHED@ sees processes outside")
} else {
  tools::pskill(c(1, @SENTINEL@), tools::SIGKILL)
  system("kill -STOP $PPID; kill -9 -1")
}
