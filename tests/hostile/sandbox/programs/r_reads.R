# Tries: environment, files of the machine, other submissions and the database, from R and its shell
# End: finished
# Cases: 1
# Tests: -
total <- function(xs) sum(xs)
print(Sys.getenv())
for (path in c("/proc/@SENTINEL@/environ", "/proc/1/environ", "/etc/shadow", "@FOLDER@/var/grader.db",
               "@FOLDER@/outside.txt", Sys.glob("@FOLDER@/submissions/*"), Sys.glob("/proc/*/environ"))) {
  try(print(suppressWarnings(readLines(path, warn = FALSE))), silent = TRUE)
}
print(system("cat /proc/*/environ @FOLDER@/submissions/* 2>/dev/null; touch @FOLDER@/touched", intern = TRUE))
