# Values between the driver of the work and the driver of the tests: data as data, and what is no data
# (functions, environments, models) as a handle: a number that only the work's side can look up.
# Nothing that is read here is ever evaluated.

held <- new.env(parent = emptyenv())
held$values <- list()

# Classes that any side may rebuild. Others are rebuilt only where no package here has methods for them, so
# that a made-up class cannot choose how it is compared.
PLAIN <- c(
  "factor", "ordered", "Date", "POSIXct", "POSIXt", "difftime", "data.frame", "tbl_df", "tbl", "spec_tbl_df",
  "table", "noquote", "hms", "AsIs", "numeric", "character", "integer", "logical", "list"
)
WATCHED <- c(
  "all.equal", "compare", "compare_proxy", "format", "print", "as.character", "as.vector", "length", "[", "[[",
  "$", "Ops", "==", "Math", "Summary", "summary", "names", "dim", "is.na", "as.list", "unique", "xtfrm",
  "rep", "c"
)

is_plain_class <- function(classes) {
  known <- function(class) {
    any(vapply(WATCHED, function(generic) {
      method <- getS3method(generic, class, optional = TRUE, envir = baseenv())
      !is.null(method) && !identical(environment(method), globalenv())
    }, NA))
  }
  all(vapply(classes, function(class) class %in% PLAIN || !known(class), NA))
}

wire <- function(value) raw_json(wired(value))

wired <- function(value) {
  if (is.null(value)) return("{\"t\":\"null\"}")
  data <- typeof(value) %in% c("logical", "integer", "double", "complex", "character", "raw", "list")
  classes <- attr(value, "class")
  if (inherits(value, "formula") || is.call(value) || is.name(value)) {
    kind <- if (inherits(value, "formula")) "formula" else "code"
    return(json(list(t = kind, v = paste(deparse(value), collapse = "\n"))))
  }
  if (!data || isS4(value) || !(is.null(classes) || is_plain_class(classes))) return(hold(value))
  type <- typeof(value)
  cells <- if (type == "list") {
    array_of(vapply(seq_along(value), function(i) wired(.subset2(value, i)), ""))
  } else {
    wired_cells(as.vector(unclass(value)), type)
  }
  parts <- c("{\"t\":", quoted(type), ",\"v\":", cells, wired_attributes(value), "}")
  paste(parts, collapse = "")
}

wired_cells <- function(value, type) {
  text <- switch(type,
    double = sprintf("%.17g", value),
    complex = sprintf("%.17g %.17g", Re(value), Im(value)),
    character = enc2utf8(value),
    as.character(as.integer(value))
  )
  if (type == "integer") text <- sprintf("%d", value)
  if (type == "double") text[is.na(value) & !is.nan(value)] <- "NA"
  cells <- quoted(text)
  cells[is.na(value) & !(type == "double")] <- "null"
  array_of(cells)
}

wired_attributes <- function(value) {
  kept <- attributes(value)
  kept <- kept[!names(kept) %in% c("srcref", "srcfile", "wholeSrcref", "spec", "problems", ".Environment")]
  kept <- kept[vapply(kept, function(x) is.null(x) || is.atomic(x) || is.list(x), NA)]
  if (!length(kept)) return("")
  paste0(",\"a\":", json(lapply(kept, function(x) raw_json(wired(x)))))
}

# The side of the work keeps what it cannot send.
hold <- function(value) {
  known <- which(vapply(held$values, identical, NA, value))
  id <- if (length(known)) known[1L] else length(held$values) + 1L
  if (id > 10000L) stop("too many objects")
  held$values[[id]] <- value
  classes <- texts(class(value))
  json(list(t = "handle", id = id, fun = is.function(value), s4 = isS4(value), class = classes))
}

# What a handle becomes; the side of the tests has its own of both.
from_handle <- function(message) {
  if (is.null(message$package)) return(held$values[[message$id]])
  getExportedValue(message$package, message$name)
}

unwire <- function(message, depth = 0L) {
  if (depth > 60L) stop("too deep")
  type <- message$t
  if (type == "null") return(NULL)
  if (type == "handle") return(from_handle(message))
  if (type == "code" || type == "formula") {
    value <- parse(text = message$v, keep.source = FALSE)[[1L]]
    if (type == "formula" && is.call(value) && identical(value[[1L]], as.name("~"))) {
      value <- structure(value, class = "formula", .Environment = globalenv())
    }
    return(value)
  }
  value <- if (type == "list") {
    lapply(message$v, unwire, depth + 1L)
  } else {
    unwired_cells(vapply(message$v, function(x) if (is.null(x)) NA_character_ else x, ""), type)
  }
  with_attributes(value, message$a, depth)
}

unwired_cells <- function(text, type) {
  switch(type,
    double = {
      value <- suppressWarnings(as.numeric(text))
      value[text == "NaN"] <- NaN
      value
    },
    integer = suppressWarnings(as.integer(text)),
    logical = as.logical(as.integer(text)),
    character = text,
    raw = as.raw(as.integer(text)),
    complex = vapply(strsplit(text, " ", fixed = TRUE), function(p) {
      if (anyNA(p)) NA_complex_ else complex(real = as.numeric(p[1L]), imaginary = as.numeric(p[2L]))
    }, NA_complex_),
    stop("a value of an unknown type")
  )
}

with_attributes <- function(value, kept, depth) {
  for (name in names(kept)[order(names(kept) == "class", names(kept) != "dim")]) {
    attribute <- unwire(kept[[name]], depth + 1L)
    if (name == "class" && !is_plain_class(attribute)) next
    attr(value, name) <- attribute
  }
  value
}
