# The driver of testthat files. It runs in a box of its own, without the work's code; see r_proxies.R.
local({
  own <- new.env(parent = baseenv())
  folder <- dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1L]))
  own$parse_json <- jsonlite::parse_json
  own$getS3method <- utils::getS3method
  own$has_testthat <- nzchar(system.file(package = "testthat"))
  if (own$has_testthat) {
    suppressPackageStartupMessages(library(testthat))
    own$R6Class <- R6::R6Class
    own$Reporter <- testthat::Reporter
    own$with_reporter <- testthat::with_reporter
    own$local_edition <- testthat::local_edition
  }
  for (part in c("r_lines.R", "r_wire.R", "r_proxies.R", "r_reporter.R")) {
    sys.source(file.path(folder, part), envir = own, keep.source = FALSE)
  }
  if (getOption("grader.forks", FALSE)) own$compile_all(own)
  lockEnvironment(own, bindings = TRUE)
  options(warn = 1, width = 80, cli.num_colors = 1L, crayon.enabled = FALSE)
  own$register_handles()
  if (getOption("grader.forks", FALSE)) own$serve else own$serve()
})
