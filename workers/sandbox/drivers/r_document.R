# Playing the work: cells in the global environment, what they print, draw and break.

session <- new.env(parent = emptyenv())
session$outputs <- list()
session$left <- 512L * 1024L
session$missing <- character()
session$child <- FALSE
session$warn <- 0
MOST_OUTPUTS <- 300L
CAPTURED <- "/proc/self/fd/1" # a file; opened by this name even when it was deleted

# Everything printed since the last time, also by C code and by programs that were started.
captured <- function() {
  flush(stdout())
  size <- file.size(CAPTURED)
  if (is.na(size) || size == 0) return("")
  reader <- file(CAPTURED, "rb")
  bytes <- readBin(reader, "raw", min(size, session$left + 1L))
  close(reader)
  close(file(CAPTURED, "wb")) # empties it
  text <- clean_text(bytes)
  if (length(bytes) > session$left) text <- paste0(text, "\n(more output is left out)\n")
  session$left <- max(0L, session$left - length(bytes))
  text
}

clean_text <- function(bytes) {
  text <- rawToChar(bytes[bytes != as.raw(0L)])
  iconv(text, "UTF-8", "UTF-8", sub = "?")
}

add_output <- function(kind, text = "", image = FALSE) {
  count <- length(session$outputs)
  last <- if (count) session$outputs[[count]]
  if (kind == "stream" && !is.null(last) && last$kind == "stream") {
    session$outputs[[count]]$text <- paste0(last$text, text)
  } else if (count < MOST_OUTPUTS) {
    session$outputs[[count + 1L]] <- list(kind = kind, text = text, image = image)
  }
}

take_stream <- function() {
  text <- captured()
  if (nzchar(text)) add_output("stream", text)
}

note_missing <- function(package) {
  if (length(package) != 1L || package %in% session$missing || session$child) return()
  session$missing <- c(session$missing, package)
  send(list(event = "missing", package = package))
}

missing_in <- function(text) {
  form <- "there is no package called [\u2018'\"]([^\u2019'\"]+)[\u2019'\"]"
  found <- regmatches(text, regexec(form, text))[[1L]]
  if (length(found)) note_missing(found[2L])
}

# A new page on the screen's device is a picture; devices that write files of the work's own are not.
count_picture <- function(...) {
  here <- dev_cur()
  own_file <- here > 1L && nzchar(c(attr(get(".Device", baseenv()), "filepath"), "")[1L])
  if (session$child || own_file) return()
  take_stream()
  add_output("display", image = TRUE)
}

watch_pictures <- function() {
  options(device = function(...) pdf(file = NULL))
  setHook("before.plot.new", function(...) if (dev_cur() == 1L || par("page")) count_picture(), "append")
  setHook("before.grid.newpage", count_picture, "append")
}

# The work's own level of warnings counts while it runs only: as errors they would end this driver.
begin_warnings <- function() options(warn = session$warn)

end_warnings <- function() {
  session$warn <- getOption("warn")
  options(warn = -1)
}

# Values as Jupyter's kernel writes them; in a script as Rscript prints them.
show_value <- function(value, notebook) {
  if (!notebook) return(print(value))
  take_stream()
  tabular <- inherits(value, c("data.frame", "matrix", "ts", "htmlwidget", "shiny.tag", "shiny.tag.list"))
  if (tabular && has_repr) cat(repr::repr_text(value), "\n", sep = "") else print(value)
  text <- captured()
  if (nzchar(text)) add_output("result", text)
}

on_warning <- function(notebook) function(w) {
  text <- conditionMessage(w)
  missing_in(text)
  level <- getOption("warn")
  if (is.numeric(level) && level >= 2) return() # becomes an error
  drawing <- grepl("conversion failure on|font (metrics|width) unknown|font family", text)
  if (!drawing && !(is.numeric(level) && level < 0)) {
    call <- call_text(w)
    shown <- if (notebook) {
      sprintf("Warning message%s:\n%s\n", if (nzchar(call)) paste(" in", call) else "", dQuote(text))
    } else {
      sprintf("Warning message:\n%s%s\n", if (nzchar(call)) paste0("In ", call, " : ") else "", text)
    }
    cat(shown, file = stderr())
  }
  tryInvokeRestart("muffleWarning")
}

# What only says that a recommended package of R's own is not installed here.
on_message <- function(m) {
  absent <- grepl("recommended package .codetools. not available", conditionMessage(m))
  if (absent) tryInvokeRestart("muffleMessage")
}

OWN_CALL <- quote(eval(expression, where))

call_text <- function(condition) {
  call <- conditionCall(condition)
  if (is.null(call) || identical(call, OWN_CALL)) return("")
  substr(deparse(call, nlines = 1L)[1L], 1L, 120L)
}

error_text <- function(condition) {
  call <- call_text(condition)
  paste0("Error", if (nzchar(call)) paste0(" in ", call), ": ", conditionMessage(condition))
}

one_line <- function(text) substr(trimws(gsub("\\s+", " ", text)), 1L, 500L)

# The line of the innermost call that stands in this source; calls know it inside of braces only.
line_of <- function(calls, source, default) {
  for (call in rev(calls)) {
    place <- attr(call, "srcref")
    if (!is.null(place) && identical(attr(place, "srcfile"), source)) return(as.integer(place)[1L])
  }
  default
}

too_long <- function(condition) {
  grepl("reached (elapsed|CPU) time limit|reached session", conditionMessage(condition))
}

# Evaluates code piece by piece. `each` gets value and visibility of each. Gives list(state, error, line).
evaluate_code <- function(code, where, seconds, notebook, each) {
  code <- gsub("\r\n?", "\n", sub("^\ufeff", "", code))
  source <- srcfilecopy("code", strsplit(code, "\n", fixed = TRUE)[[1L]])
  pieces <- tryCatch(parse(text = code, keep.source = TRUE, srcfile = source), error = identity)
  if (inherits(pieces, "error")) return(parse_failure(pieces))
  lines <- vapply(attr(pieces, "srcref"), function(place) as.integer(place)[1L], 1L)
  at <- NA_integer_
  begin_warnings()
  on.exit({
    stop_clock()
    end_warnings()
  })
  failed <- NULL
  quit <- FALSE
  forget_interrupt()
  tryCatch(
    withCallingHandlers(
      allowInterrupts({
        start_clock(seconds)
        for (i in seq_along(pieces)) {
          at <- lines[i]
          expression <- pieces[[i]]
          result <- withVisible(eval(expression, where))
          each(result$value, result$visible)
        }
      }),
      warning = on_warning(notebook),
      message = on_message,
      error = function(e) at <<- line_of(sys.calls(), source, at)
    ),
    error = function(e) failed <<- e,
    interrupt = function(e) failed <<- simpleError(CAUGHT_LATE),
    grader_quit = function(e) quit <<- TRUE
  )
  stop_clock()
  if (is.null(failed)) return(list(state = "ran", error = "", line = NULL, quit = quit))
  if (inherits(failed, "packageNotFoundError")) note_missing(failed$package)
  missing_in(conditionMessage(failed))
  late <- too_long(failed)
  text <- if (late) sprintf("Error: stopped after %g seconds", seconds) else error_text(failed)
  list(state = if (late) "too long" else "failed", error = text, line = at, condition = failed)
}

parse_failure <- function(condition) {
  text <- conditionMessage(condition)
  place <- regmatches(text, regexec(":([0-9]+):[0-9]+: ([^\n]*)", text))[[1L]]
  list(
    state = "failed",
    error = paste0("Error: the code cannot be read: ", if (length(place)) place[3L] else text),
    line = if (length(place)) as.integer(place[2L]),
    condition = condition
  )
}

run_cell <- function(cell, notebook, seconds) {
  began <- proc.time()[["elapsed"]]
  session$outputs <- list()
  done <- evaluate_code(cell$source, globalenv(), seconds, notebook, function(value, visible) {
    if (visible) show_value(value, notebook)
    take_stream()
  })
  take_stream()
  if (nzchar(done$error)) add_output("error", substr(done$error, 1L, 4000L))
  outputs <- session$outputs
  session$outputs <- list()
  list(
    event = "cell", number = cell$number, state = done$state, outputs = outputs, error = one_line(done$error),
    line = done$line, seconds = round(proc.time()[["elapsed"]] - began, 3)
  )
}

play <- function(message) {
  work <- message$work
  notebook <- identical(work$kind, "notebook")
  session$left <- as.integer(message$output_kb) * 1024L
  watch_pictures()
  watch_clock()
  if (nzchar(trimws(work$prelude))) {
    before <- run_cell(list(number = 0L, source = work$prelude), FALSE, message$cell_s)
    if (before$state != "ran") {
      cat(sprintf("(the code that runs before the work failed: %s)\n", before$error), file = stderr())
    }
  }
  for (cell in work$cells) send(run_cell(cell, notebook, message$cell_s))
  send(list(event = "played"))
}
