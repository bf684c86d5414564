# The driver of the work in R: JSON lines in on descriptor 3, out on descriptor 4, as runtimes/r.py starts it.
# In a fork server (python_r_fork_server.py) its value is the function that serves, which each fork calls.
local({
  own <- new.env(parent = baseenv())
  folder <- dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1L]))
  own$parse_json <- jsonlite::parse_json
  own$has_repr <- nzchar(system.file(package = "repr"))
  own$capture_output <- utils::capture.output
  own$utils_removeSource <- utils::removeSource
  own$getS3method <- utils::getS3method
  own$dev_cur <- grDevices::dev.cur
  own$pdf <- grDevices::pdf
  own$par <- graphics::par
  own$slot_of <- methods::slot
  own$pause <- base::Sys.sleep
  own$QUIT <- base::quit
  own$fork <- parallel:::mcfork
  own$leave_fork <- parallel:::mcexit
  own$to_parent <- parallel:::sendMaster
  own$wait_for <- parallel:::selectChildren
  own$from_child <- parallel:::readChild
  own$kill <- tools::pskill
  parts <- c("lines", "shape", "wire", "clock", "document", "stand_ins", "remote", "evaluate")
  for (part in sprintf("r_%s.R", parts)) {
    sys.source(file.path(folder, part), envir = own, keep.source = FALSE)
  }
  if (getOption("grader.forks", FALSE)) own$compile_all(own)
  lockEnvironment(own, bindings = TRUE)
  own$stand_in()
  options(
    warn = -1, width = 80, cli.num_colors = 1L, crayon.enabled = FALSE, readr.show_progress = FALSE,
    jupyter.rich_display = FALSE, jupyter.base_display_func = own$show_bundle
  )
  if (getOption("grader.forks", FALSE)) own$serve else own$serve()
})
