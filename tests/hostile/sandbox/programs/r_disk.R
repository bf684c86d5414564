# Tries: filling the disk
# End: finished | memory | left
# Cases: 1
# Tests: -
total <- function(xs) sum(xs)
con <- file("big", "wb")
for (i in 1:1000) writeBin(raw(2^20), con)
print("@REACHED@ 1 GB on disk")
