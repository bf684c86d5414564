# Values of R as Shapes (grading/execution/values.py), already written as JSON. Bounded in depth, nodes and cells.

MOST_NODES <- 20000L
MOST_CELLS <- 100000L
MOST_TEXT <- 100000L
DEEPEST <- 20L
MOST_PRINTED <- 4000L

shape <- function(value) {
  budget <- new.env(parent = emptyenv())
  budget$nodes <- MOST_NODES
  raw_json(shaped(value, budget, 0L))
}

# `fields` are pieces of JSON by their names.
node <- function(kind, type, ...) {
  fields <- c(kind = quoted(kind), type = quoted(type), ...)
  paste0("{", paste0("\"", names(fields), "\":", fields, collapse = ","), "}")
}

shaped <- function(value, budget, depth) {
  budget$nodes <- budget$nodes - 1L
  if (depth > DEEPEST || budget$nodes < 0L) {
    return(node("other", type_of(value), cut = "true"))
  }
  if (is.null(value)) {
    node("nothing", "NULL")
  } else if (is.data.frame(value)) {
    shaped_table(as.list(value), names(value), nrow(value), class(value)[1L])
  } else if (inherits(value, c("gg", "ggplot", "recordedplot", "trellis"))) {
    node("picture", type_of(value))
  } else if (is.factor(value)) {
    listed(text_nodes(as.character(value)), value, "factor", budget)
  } else if (is.matrix(value) && is.atomic(value)) {
    columns <- lapply(seq_len(ncol(value)), function(i) as.vector(value[, i]))
    names <- if (is.null(colnames(value))) sprintf("V%d", seq_along(columns)) else colnames(value)
    shaped_table(columns, names, nrow(value), "matrix")
  } else if (is.atomic(value)) {
    shaped_vector(value, budget)
  } else if (is.list(value)) {
    shaped_list(value, budget, depth)
  } else {
    node("other", type_of(value), text = quoted(printed_form(value)))
  }
}

type_of <- function(value) class(value)[1L]

first <- function(x, n) x[seq_len(min(length(x), max(n, 0L)))]

printed_form <- function(value) {
  if (is.environment(value)) return("<environment>")
  if (is.function(value)) value <- utils_removeSource(value)
  lines <- tryCatch(capture_output(print(value)), error = function(e) "")
  substr(paste(first(lines, 200L), collapse = "\n"), 1L, MOST_PRINTED)
}

shaped_vector <- function(value, budget) {
  nodes <- vector_nodes(first(value, budget$nodes + 1L))
  if (length(value) == 1L && is.null(names(value)) && !inherits(value, "table")) {
    nodes
  } else {
    listed(nodes, value, type_of(value), budget)
  }
}

# A list of nodes; with the names of `value` where it has some.
listed <- function(nodes, value, type, budget) {
  keep <- min(length(nodes), max(budget$nodes, 0L))
  labels <- names(value)
  budget$nodes <- budget$nodes - keep
  c_names <- if (!is.null(labels)) c(names = unclass(texts(first(labels, keep))))
  cut <- if (keep < length(value)) c(cut = "true")
  items <- c(items = unclass(array_of(first(nodes, keep))))
  node("list", type, items, c_names, cut)
}

# One node for each element.
vector_nodes <- function(value) {
  if (!length(value)) return(character())
  type <- quoted(type_of(value))
  absent <- if (is.numeric(value) || is.complex(value)) is.na(value) & !is.nan(value) else is.na(value)
  nodes <- if (is_time(value)) {
    text_nodes(iso(value), type)
  } else if (is.logical(value)) {
    sprintf("{\"kind\":\"truth\",\"type\":%s,\"text\":\"%s\"}", type, tolower(as.character(value)))
  } else if (is.character(value)) {
    text_nodes(value, type)
  } else {
    sprintf("{\"kind\":\"number\",\"type\":%s,\"text\":%s}", type, quoted(number_text(value)))
  }
  nodes[as.vector(absent)] <- "{\"kind\":\"nothing\",\"type\":\"NA\"}"
  nodes
}

text_nodes <- function(value, type = "\"character\"") {
  if (!length(value)) return(character())
  long <- !is.na(value) & nchar(value, "bytes", allowNA = TRUE) > MOST_TEXT
  value[which(long)] <- substr(value[which(long)], 1L, MOST_TEXT)
  nodes <- sprintf("{\"kind\":\"text\",\"type\":%s,\"text\":%s%s}", type, quoted(value),
    ifelse(long %in% TRUE, ",\"cut\":true", ""))
  nodes[is.na(value)] <- "{\"kind\":\"nothing\",\"type\":\"NA\"}"
  nodes
}

# "6", "0.1", "nan", "inf", "1+2j"
number_text <- function(value) {
  if (inherits(value, "integer64")) return(format(value, trim = TRUE))
  if (is.raw(value)) value <- as.integer(value)
  if (is.complex(value)) {
    return(paste0(tolower(digits(Re(value))), ifelse(Im(value) < 0, "", "+"), tolower(digits(Im(value))), "j"))
  }
  if (!is.integer(value)) value <- as.double(value)
  tolower(digits(as.vector(unclass(value))))
}

is_time <- function(value) inherits(value, c("Date", "POSIXct"))

iso <- function(value) {
  if (inherits(value, "Date")) return(format(value, "%Y-%m-%d"))
  whole <- all(is.na(value) | as.double(value) %% 1 == 0)
  format(value, if (whole) "%Y-%m-%dT%H:%M:%SZ" else "%Y-%m-%dT%H:%M:%OS6Z", tz = "UTC")
}

shaped_list <- function(value, budget, depth) {
  type <- type_of(value)
  if (inherits(value, "POSIXlt")) return(shaped(as.POSIXct(value), budget, depth))
  if (is.object(value)) {
    # a model or an object of the student's own: its data, not its formulas, calls and environments
    value <- unclass(value)
    value <- value[!vapply(value, function(x) is.language(x) || is.function(x) || is.environment(x), NA)]
  }
  labels <- names(value)
  keep <- min(length(value), max(budget$nodes, 0L))
  items <- vapply(seq_len(keep), function(i) shaped(value[[i]], budget, depth + 1L), "")
  cut <- if (keep < length(value)) c(cut = "true")
  if (length(value) && !is.null(labels) && !anyNA(labels) && all(nzchar(labels))) {
    node("map", type, items = unclass(array_of(items)),
      keys = unclass(array_of(text_nodes(first(labels, keep)))), cut)
  } else {
    c_names <- if (!is.null(labels)) c(names = unclass(texts(first(labels, keep))))
    node("list", type, items = unclass(array_of(items)), c_names, cut)
  }
}

shaped_table <- function(columns, names, rows, type) {
  many <- min(length(columns), MOST_CELLS)
  keep <- min(rows, MOST_CELLS %/% max(many, 1L))
  cells <- vapply(columns[seq_len(many)], function(x) unclass(array_of(table_cells(x, keep))), "")
  cut <- if (keep < rows || many < length(columns)) c(cut = "true")
  node("table", type, names = unclass(texts(first(names, many))), columns = unclass(array_of(cells)), cut)
}

# The first `keep` cells of a column as JSON: numbers, text, truth; NA and NaN are null, Inf is text.
table_cells <- function(x, keep) {
  if (is.data.frame(x)) x <- do.call(paste, unname(as.list(x)))
  if (is.matrix(x)) x <- apply(x, 1L, paste, collapse = " ")
  if (is.list(x)) x <- vapply(x, function(item) paste(format(item), collapse = " "), "")
  x <- first(x, keep)
  cells <- if (is.factor(x)) {
    quoted(as.character(x))
  } else if (is_time(x)) {
    quoted(iso(x))
  } else if (is.logical(x)) {
    tolower(as.character(x))
  } else if (is.numeric(x) || inherits(x, "difftime")) {
    text <- number_text(x)
    ifelse(grepl("inf", text, fixed = TRUE), quoted(text), text)
  } else {
    quoted(as.character(x))
  }
  cells[is.na(x)] <- "null"
  cells
}
