# The work as tests see it: functions that relay, variables that are fetched, handles for objects.

relay <- function(body) {
  send(list(event = "remote", body = body))
  message <- receive()
  if (is.null(message) || !identical(message$do, "remote")) stop("the work can no longer be reached")
  reply <- message$body
  # expect_error() must not be content with work that is no more, or that gives nonsense
  if (!is.list(reply) || isTRUE(reply$gone) || (is.null(reply$error) && !is.list(reply$value))) {
    current$gone <- TRUE
    stop("the work ended itself, or was ended because of a limit")
  }
  cat(reply$printed)
  for (one in reply$said) say_again(one)
  if (!is.null(reply$error)) raise(reply$error)
  value <- unwire(reply$value)
  if (isFALSE(reply$visible)) invisible(value) else value
}

# What the work says must not pass for a word of testthat's own.
honest <- function(classes) {
  classes <- unlist(classes)
  classes[!grepl("^(expectation|skip|interrupt|testthat|packageNot|restart|grader)", classes)]
}

say_again <- function(one) {
  base <- if (one$kind == "warning") "warning" else "message"
  classes <- unique(c(honest(one$class), base, "condition"))
  condition <- structure(class = setdiff(classes, "error"), list(message = one$message, call = NULL))
  if (base == "warning") warning(condition) else message(condition)
}

raise <- function(error) {
  if (isTRUE(error$late)) current$late <- TRUE
  classes <- setdiff(unique(c(honest(error$class), "error", "condition")), c("warning", "message"))
  call <- if (!is.null(error$call)) tryCatch(str2lang(error$call), error = function(e) NULL)
  stop(structure(class = classes, list(message = error$message, call = if (is.call(call)) call)))
}

# --- what is given to the work -------------------------------------------------------------------------

hold <- function(value) {
  if (is.function(value) && !is.null(attr(value, "grader_id"))) {
    return(json(list(t = "handle", id = attr(value, "grader_id"))))
  }
  if (inherits(value, "grader_handle")) return(json(list(t = "handle", id = id_of(value))))
  if (is.function(value)) {
    place <- environment(value)
    package <- if (is.null(place)) "base" else getNamespaceName_or_none(place)
    for (name in if (nzchar(package)) getNamespaceExports(package)) {
      if (identical(getExportedValue(package, name), value)) {
        return(json(list(t = "handle", package = package, name = name)))
      }
    }
    said <- "a function that is written in a test cannot be given to the work; functions of packages can"
    stop(said, call. = FALSE)
  }
  stop("an object of class ", class(value)[1L], " cannot be given to the work", call. = FALSE)
}

getNamespaceName_or_none <- function(place) if (isNamespace(place)) getNamespaceName(place)[[1L]] else ""

# Arguments by value; an argument that names what only the work's data have goes as code.
arguments <- function(...) {
  codes <- as.list(substitute(alist(...)))[-1L]
  values <- lapply(seq_along(codes), function(i) {
    tryCatch(
      wire(...elt(i)),
      error = function(e) {
        unknown <- grepl("^object '.*' not found$", conditionMessage(e))
        if (unknown && is.language(codes[[i]])) wire(codes[[i]]) else stop(e)
      }
    )
  })
  names <- names(codes)
  list(args = values, names = if (!is.null(names)) texts(names))
}

# --- what comes from the work --------------------------------------------------------------------------

proxy <- function(target) {
  force(target)
  function(...) relay(c(list(op = "call"), target, arguments(...)))
}

from_handle <- function(message) {
  id <- as.integer(message$id)
  if (length(id) != 1L || is.na(id)) stop("a value of an unknown type")
  if (isTRUE(message$fun)) return(structure(proxy(list(id = id)), grader_id = id))
  handle <- new.env(parent = emptyenv())
  assign("id", id, envir = handle)
  classes <- unlist(message$class)
  classes <- classes[vapply(classes, is_plain_class, NA) & !classes %in% PLAIN]
  structure(handle, class = c("grader_handle", setdiff(honest(classes), "environment")))
}

id_of <- function(handle) get("id", envir = handle, inherits = FALSE)

register_handles <- function() {
  field <- function(how) function(x, i, ...) {
    relay(list(op = "field", id = id_of(x), key = wire(i), how = how))
  }
  set <- function(x, i, value) {
    relay(list(op = "set", id = id_of(x), key = wire(as.character(i)), value = wire(value)))
    x
  }
  by_name <- function(x, name) field("$")(x, as.character(name))
  ask_it <- function(op) function(x, ...) relay(list(op = op, id = id_of(x)))
  methods <- list(
    "$" = by_name, "[[" = field("[["), "$<-" = set, "[[<-" = set, length = ask_it("size"),
    names = ask_it("members"), print = function(x, ...) invisible({
      relay(list(op = "text", id = id_of(x)))
      x
    })
  )
  for (generic in names(methods)) {
    registerS3method(generic, "grader_handle", methods[[generic]], envir = baseenv())
  }
}

# Variables come before everything, which masks no function; functions after everything, so that the work
# cannot change what the words of a test mean. `work$name` reaches either in any case.
stage_of <- function() {
  names <- relay(list(op = "names"))
  variables <- new.env(parent = globalenv())
  known <- c(ls(baseenv(), all.names = TRUE), ls(as.environment("package:datasets")))
  for (name in setdiff(names$values, known[!vapply(known, is_base_function, NA)])) {
    makeActiveBinding(name, variable(name), variables)
  }
  functions <- new.env(parent = emptyenv())
  for (name in setdiff(names$functions, known)) assign(name, proxy(list(name = name)), envir = functions)
  for (name in Filter(is_own_method, names$functions)) assign(name, own_method(name), envir = variables)
  attach(functions, pos = length(search()), name = "work", warn.conflicts = FALSE)
  assign("work", whole_work(names), envir = variables)
  assign("source", function(...) invisible(), envir = variables)
  assign("setwd", function(dir) invisible(getwd()), envir = variables)
  new.env(parent = variables)
}

# What a class of the work may say about its values: how they look, and what operators make of two of them. What a
# value is (`length`, `sum`, `all`, `[`, `names`) the functions of R itself find out, on plain data; a method of the
# work would answer as the test wishes. `work$length.stack(s)` asks for it where a task is to write one.
SHOWING <- c("print", "format", "toString", "summary", "plot")
COMPARING <- c("==", "!=", "<", ">", "<=", ">=", "Ops", "all.equal", "compare")
BINARY <- c("+", "-", "*", "/", "^", "%%", "%/%", "&", "|", "%*%")

# `print.member`: a method for a class that only the work knows; R does not look for methods behind everything
# else. `all.equal` and `all.equal.numeric` may be read as such, too, so no reading may be of R's own.
is_own_method <- function(name) {
  dots <- gregexpr(".", name, fixed = TRUE)[[1L]]
  dots <- dots[dots > 1L]
  if (!length(dots) || exists(name, globalenv(), mode = "function")) return(FALSE)
  generic <- vapply(dots, function(dot) exists(substr(name, 1L, dot - 1L), globalenv(), mode = "function"), NA)
  generics <- substring(name, 1L, dots - 1L)[generic]
  if (!all(generics %in% c(SHOWING, COMPARING, BINARY))) return(FALSE)
  classes <- substring(name, dots + 1L)[generic]
  length(classes) > 0L && !any(classes %in% IMPLICIT) && is_plain_class(classes)
}

# What an object of the work says about a plain value is worth nothing: that could be whatever is wished for.
own_method <- function(name) {
  ask <- proxy(list(name = name))
  generics <- substring(name, 1L, gregexpr(".", name, fixed = TRUE)[[1L]] - 1L)
  compares <- any(generics %in% COMPARING)
  binary <- any(generics %in% BINARY)
  if (!compares && !binary) return(ask)
  function(...) {
    plain <- !all(vapply(list(...), inherits, NA, "grader_handle"))
    if (plain && compares) stop("an object of the work cannot tell whether it is a plain value")
    value <- ask(...)
    if (plain && !inherits(value, "grader_handle")) stop("an object of the work gave a plain value for one")
    value
  }
}

IMPLICIT <- c(
  PLAIN, "default", "double", "complex", "raw", "function", "matrix", "array", "environment", "call", "name",
  "language", "expression", "formula", "NULL", "if", "for", "while", "(", "{", "<-"
)

is_base_function <- function(name) exists(name, baseenv(), mode = "function", inherits = FALSE)

variable <- function(name) {
  force(name)
  function(value) {
    if (!missing(value)) stop("a test cannot change the work's ", name)
    found <- relay(list(op = "get", name = name))
    if (is.function(found)) stop("the work's ", name, " has become a function")
    found
  }
}

whole_work <- function(names) {
  all <- new.env(parent = emptyenv())
  for (name in names$values) makeActiveBinding(name, variable(name), all)
  for (name in names$functions) assign(name, proxy(list(name = name)), envir = all)
  lockEnvironment(all)
  all
}
