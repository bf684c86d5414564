# Tries: the network by url, socketConnection, download.file and install.packages
# End: finished | too long
# Cases: 1
# Tests: -
total <- function(xs) sum(xs)
options(timeout = 1)
try({
  con <- suppressWarnings(socketConnection("127.0.0.1", @TCP@, timeout = 1))
  writeLines("reached", con)
  print("@REACHED@")
})
try(print(suppressWarnings(readLines("http://127.0.0.1:@TCP@/"))))
try(suppressWarnings(download.file("http://127.0.0.1:@TCP@/", "x", quiet = TRUE)))
try(suppressWarnings(nsl("leak.example.invalid")))
