# What a test asks of the work: a variable, a call of one of its functions, a field of one of its objects.

remote <- function(body, seconds) {
  session$left <- 65536L
  captured()
  said <- list()
  keep <- function(kind) function(condition) {
    said[[length(said) + 1L]] <<- list(
      kind = kind, message = conditionMessage(condition), class = texts(class(condition))
    )
    tryInvokeRestart(if (kind == "warning") "muffleWarning" else "muffleMessage")
  }
  begin_warnings()
  on.exit({
    stop_clock()
    end_warnings()
  })
  forget_interrupt()
  outcome <- tryCatch(
    withCallingHandlers(
      allowInterrupts({
        start_clock(seconds)
        answer <- served(body)
        list(value = wire(answer$value), visible = answer$visible)
      }),
      warning = keep("warning"), message = keep("message")
    ),
    grader_quit = function(e) list(error = remote_error(simpleError("the work ended itself (quit)"))),
    error = function(e) list(error = remote_error(e)),
    interrupt = function(e) list(error = remote_error(simpleError(CAUGHT_LATE)))
  )
  stop_clock()
  c(outcome, list(said = said, printed = captured()))
}

remote_error <- function(e) {
  missing_in(conditionMessage(e))
  if (too_long(e)) return(list(message = "too long", late = TRUE, class = texts("error")))
  call <- call_text(e)
  list(message = conditionMessage(e), class = texts(class(e)), call = if (nzchar(call)) call)
}

plainly <- function(value) list(value = value, visible = TRUE)

served <- function(body) {
  arguments <- function() {
    values <- lapply(body$args, unwire)
    if (length(body$names)) names(values) <- unlist(body$names)
    values
  }
  switch(body$op,
    names = plainly(public_names()),
    get = {
      if (!exists(body$name, globalenv(), inherits = FALSE)) stop("object '", body$name, "' not found")
      plainly(get(body$name, globalenv()))
    },
    call = called(if (is.null(body$id)) body$name else held$values[[body$id]], arguments()),
    field = {
      plainly(field_of(held$values[[body$id]], unwire(body$key), body$how))
    },
    set = {
      object <- held$values[[body$id]]
      assign(unwire(body$key), unwire(body$value), envir = as.environment(object))
      plainly(NULL)
    },
    text = {
      print(held$values[[body$id]])
      plainly(NULL)
    },
    size = plainly(length(plain(held$values[[body$id]]))),
    members = plainly(names(plain(held$values[[body$id]]))),
    stop("the test asks for something unknown")
  )
}

# The data of an object, for which no method of the work is looked up.
plain <- function(object) {
  if (is.environment(object)) return(as.list.environment(object, all.names = TRUE))
  if (isS4(object)) return(tryCatch(slot_of(object, ".Data"), error = function(e) list(NULL)))
  unclass(object)
}

# Whether the work itself wrote the method that R would take.
made_here <- function(object, generic) {
  any(vapply(class(object), function(class) {
    method <- getS3method(generic, class, optional = TRUE, envir = globalenv())
    !is.null(method) && identical(environment(method), globalenv())
  }, NA))
}

field_of <- function(object, key, how) {
  if (isS4(object) && !is.environment(object)) return(slot_of(object, key))
  if (!isS4(object) && made_here(object, how)) return(.subset2(object, key))
  if (how == "$") do.call(`$`, list(object, key)) else object[[key]]
}

public_names <- function() {
  names <- ls(globalenv(), all.names = FALSE)
  is_code <- vapply(names, function(name) exists(name, globalenv(), mode = "function", inherits = FALSE), NA)
  list(functions = names[is_code], values = names[!is_code])
}

# By name where there is one, so that errors and match.call() show it.
called <- function(target, values) {
  if (is.character(target)) {
    if (!exists(target, globalenv(), mode = "function", inherits = FALSE)) {
      stop("could not find function \"", target, "\"")
    }
    target <- as.name(target)
  }
  # code goes in as code, for functions that look at it
  withVisible(eval(as.call(c(list(target), values)), globalenv()))
}
