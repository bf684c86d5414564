# Tries: leaving with success
# End: left | finished
# Cases: 0
# Tests: -
cat("[ FAIL 0 | WARN 0 | SKIP 0 | PASS 8 ]\n")
quit(save = "no", status = 0)
