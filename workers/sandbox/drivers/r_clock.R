# Time limits. R raises its own as an error, which `try` in an endless loop catches; a second later a process
# beside this one interrupts, which is no error. Both are let in only where code is evaluated that may be
# stopped: what comes later, when the code has just ended, would end the driver itself.

CAUGHT_LATE <- "reached elapsed time limit"
LIMIT_FILE <- file.path(tempdir(), "until")

start_clock <- function(seconds) {
  if (!session$child) writeLines(sprintf("%.2f", as.numeric(Sys.time()) + seconds + 1), LIMIT_FILE)
  setTimeLimit(elapsed = seconds)
}

# An interrupt that came when the code had ended is not for the code that follows.
forget_interrupt <- function() tryCatch(allowInterrupts(pause(0.001)), interrupt = function(e) NULL)

stop_clock <- function() {
  setTimeLimit()
  if (!session$child) unlink(LIMIT_FILE)
}

watch_clock <- function() {
  parent <- Sys.getpid()
  watcher <- fork(estranged = TRUE)
  if (inherits(watcher, "masterProcess")) {
    on.exit(leave_fork(0L))
    while (dir.exists(sprintf("/proc/%d", parent))) {
      until <- tryCatch(suppressWarnings(scan(LIMIT_FILE, n = 1L, quiet = TRUE)), error = function(e) Inf)
      if (isTRUE(as.numeric(Sys.time()) > until)) kill(parent, 2L)
      pause(0.2)
    }
    leave_fork(0L)
  }
}
