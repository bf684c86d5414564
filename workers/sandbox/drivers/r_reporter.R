# One event a test: what testthat reports about it, in a few lines.

current <- new.env(parent = emptyenv())
current$late <- FALSE
current$gone <- FALSE
current$results <- list()
current$blocks <- 0L
MOST_MESSAGE <- 800L

state_of <- function(results) {
  has <- function(kind) any(vapply(results, inherits, NA, paste0("expectation_", kind)))
  said <- function(text) vapply(results, function(r) grepl(text, conditionMessage(r), fixed = TRUE), NA)
  late <- current$late || any(said("reached elapsed time limit"))
  # a test without an expectation that ran through, such as one of stopifnot()
  skipped <- results[vapply(results, inherits, NA, "expectation_skip") & !said("empty test")]
  if (late) "too long" else if (current$gone || has("error")) "error" else if (has("failure")) "failed" else
    if (length(skipped)) "skipped" else "passed"
}

message_of <- function(results, state) {
  kinds <- if (state == "skipped") "expectation_skip" else c("expectation_failure", "expectation_error")
  wrong <- Filter(function(r) inherits(r, kinds), results)
  if (state == "passed") return("")
  if (state == "too long") return("it took too long")
  if (current$gone && !length(wrong)) return("the work ended itself, or was ended because of a limit")
  lines <- vapply(wrong, function(r) sub("\\s*Backtrace:.*$", "", conditionMessage(r)), "")
  substr(paste(unique(lines), collapse = "\n"), 1L, MOST_MESSAGE)
}

tell <- function(name, results) {
  state <- state_of(results)
  send(list(event = "tested", name = name, state = state, message = message_of(results, state)))
  current$late <- FALSE
  current$gone <- FALSE
}

# Tests may be nested (describe, it); the results belong to the innermost.
make_reporter <- function(seconds) {
  R6Class("OneEventATest",
    inherit = Reporter, parent_env = environment(),
    public = list(
      open = list(),
      start_test = function(context, test) {
        self$open[[length(self$open) + 1L]] <- list(name = test, results = list())
        if (length(self$open) == 1L) setTimeLimit(elapsed = seconds)
      },
      add_result = function(context, test, result) {
        last <- length(self$open)
        if (last) {
          results <- self$open[[last]]$results
          self$open[[last]]$results[[length(results) + 1L]] <- result
        }
      },
      end_test = function(context, test) {
        if (length(self$open) == 1L) setTimeLimit()
        ended <- self$open[[length(self$open)]]
        self$open[[length(self$open)]] <- NULL
        names <- c(vapply(self$open, function(one) one$name, ""), ended$name)
        current$blocks <- current$blocks + 1L
        if (length(ended$results)) tell(paste(names, collapse = " "), ended$results)
      }
    )
  )$new()
}

# Expectations outside of test_that() are one test; so is a file without any block.
run_file <- function(file) {
  if (!has_testthat) {
    said <- "R's package testthat is not installed on the server (r-cran-testthat)"
    return(send(list(event = "tested", name = file$path, state = "not reached", message = said)))
  }
  current$blocks <- 0L
  current$results <- list()
  pieces <- tryCatch(parse(text = file$source, keep.source = FALSE), error = identity)
  if (inherits(pieces, "error")) {
    return(send(list(
      event = "tested", name = file$path, state = "error",
      message = paste("the test file cannot be read:", conditionMessage(pieces))
    )))
  }
  # the edition of a file outside of any package; otherwise testthat looks for a package at each expectation
  local_edition(2L, .env = environment())
  place <- stage_of()
  on.exit(detach("work", character.only = TRUE))
  with_reporter(make_reporter(file$seconds), for (piece in pieces) run_piece(piece, place, file$seconds))
  if (length(current$results) || !current$blocks) tell(file$path, current$results)
}

keep_result <- function(result) current$results[[length(current$results) + 1L]] <- result

run_piece <- function(piece, place, seconds) {
  block <- is.call(piece) && as.character(piece[[1L]])[1L] %in% c("test_that", "describe", "it", "context")
  on.exit(setTimeLimit())
  tryCatch(
    withCallingHandlers(
      {
        if (!block) setTimeLimit(elapsed = seconds)
        eval(piece, place)
      },
      expectation = function(e) {
        keep_result(e)
        tryInvokeRestart("continue_test")
      }
    ),
    error = function(e) {
      class(e) <- c("expectation_error", setdiff(class(e), "expectation_failure"))
      keep_result(e)
    }
  )
}

serve <- function() {
  repeat {
    message <- receive()
    if (is.null(message) || !identical(message$do, "test")) break
    tryCatch(run_file(message$file), error = function(e) {
      said <- paste("the test file could not be run:", conditionMessage(e))
      send(list(event = "tested", name = message$file$path, state = "error", message = said))
    })
    send(list(event = "tests done"))
  }
  quit(save = "no", status = 0L, runLast = FALSE)
}
