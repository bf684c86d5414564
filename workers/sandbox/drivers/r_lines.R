# JSON lines on two file descriptors of their own, and a writer of JSON for what the drivers say.
# Sourced into the drivers' private environment, whose parent is the base package.

# Text as it stands in JSON; bytes that are no UTF-8 become "?".
quoted <- function(x) {
  x <- as.character(x)
  if (!length(x)) return(character())
  if (any(Encoding(x) == "bytes")) Encoding(x)[Encoding(x) == "bytes"] <- "UTF-8"
  x <- iconv(enc2utf8(x), "UTF-8", "UTF-8", sub = "?")
  x[is.na(x)] <- "NA"
  x <- gsub("\\", "\\\\", x, fixed = TRUE)
  x <- gsub("\"", "\\\"", x, fixed = TRUE)
  if (any(grepl("[\001-\037\177]", x))) {
    for (code in c(1:31, 127L)) {
      x <- gsub(intToUtf8(code), sprintf("\\u%04x", code), x, fixed = TRUE)
    }
  }
  paste0("\"", x, "\"")
}

raw_json <- function(text) structure(text, class = "grader_json")

array_of <- function(parts) raw_json(paste0("[", paste(parts, collapse = ","), "]"))

texts <- function(x) array_of(quoted(x))

# Lists become arrays or, with names, objects; vectors of length 1 are scalars; NULL and NA are null.
json <- function(x) {
  if (is.null(x)) {
    "null"
  } else if (inherits(x, "grader_json")) {
    unclass(x)
  } else if (is.list(x)) {
    parts <- vapply(x, json, "")
    if (is.null(names(x))) {
      paste0("[", paste(parts, collapse = ","), "]")
    } else {
      paste0("{", paste0(quoted(names(x)), ":", parts, collapse = ","), "}")
    }
  } else if (is.na(x[1L])) {
    "null"
  } else if (is.character(x)) {
    quoted(x[1L])
  } else if (is.logical(x)) {
    if (x[1L]) "true" else "false"
  } else {
    digits(x[1L])
  }
}

# Numbers in full: 15 digits where they are enough, else 16 or 17.
digits <- function(x) {
  if (is.integer(x)) return(ifelse(is.na(x), "NA", sprintf("%d", x)))
  text <- sprintf("%.15g", x)
  for (form in c("%.16g", "%.17g")) {
    short <- which(suppressWarnings(as.numeric(text)) != x)
    text[short] <- sprintf(form, x[short])
  }
  text
}

# The connection. What is opened anew on each failure survives closeAllConnections().
channel <- new.env(parent = emptyenv())

open_end <- function(descriptor, mode) {
  path <- sprintf("/proc/self/fd/%d", descriptor)
  tryCatch(
    suppressWarnings(file(path, open = mode, raw = TRUE)),
    # a pipe of another user, or a socket, cannot be opened by its name
    error = function(e) {
      pipe(sprintf(if (mode == "rb") "exec cat <&%d" else "exec cat >&%d", descriptor), mode)
    }
  )
}

receive <- function() {
  read <- function() readLines(channel$from, 1L, warn = FALSE, encoding = "UTF-8")
  if (is.null(channel$from)) channel$from <- open_end(3L, "rb")
  line <- tryCatch(read(), error = function(e) {
    channel$from <- open_end(3L, "rb")
    read()
  })
  if (length(line)) parse_json(line) else NULL
}

send <- function(message) send_line(json(message))

# One write a line, so that lines never mix.
send_line <- function(line) {
  bytes <- c(charToRaw(enc2utf8(line)), as.raw(10L))
  write <- function() {
    writeBin(bytes, channel$to)
    flush(channel$to)
  }
  if (is.null(channel$to)) channel$to <- open_end(4L, "wb")
  tryCatch(write(), error = function(e) {
    channel$to <- open_end(4L, "wb")
    write()
  })
  invisible()
}

# Once in a fork server, or R would do it in every fork, after the second call of each function.
compile_all <- function(own) {
  for (name in ls(own)) {
    value <- get(name, own)
    if (is.function(value) && identical(environment(value), own)) assign(name, compiler::cmpfun(value), own)
  }
}
