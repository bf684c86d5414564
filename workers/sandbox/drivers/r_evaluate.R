# What the server asks of the driver, and expressions that are evaluated in a process of their own.

answer <- function(state, value = NULL, error = "", printed = "") {
  list(event = "answer", state = state, value = value, error = error, printed = printed)
}

look <- function(name) {
  if (!exists(name, globalenv(), inherits = FALSE)) return(answer("missing"))
  tryCatch(
    answer("value", shape(get(name, globalenv(), inherits = FALSE))),
    error = function(e) answer("error", error = one_line(error_text(e)))
  )
}

# In the child: the whole answer but for what was printed.
evaluated <- function(code, seconds) {
  session$child <- TRUE
  last <- NULL
  done <- evaluate_code(code, globalenv(), seconds, FALSE, function(value, visible) last <<- value)
  if (done$state == "too long") return(answer("too long", error = "too long"))
  if (isTRUE(done$quit)) return(answer("error", error = "the expression ended its process"))
  if (done$state == "failed") return(answer("error", error = one_line(done$error)))
  tryCatch(answer("value", shape(last)), error = function(e) answer("error", error = one_line(error_text(e))))
}

ask <- function(code, seconds) {
  session$left <- 65536L
  captured()
  child <- fork()
  if (inherits(child, "masterProcess")) {
    on.exit(leave_fork(1L))
    reply <- evaluated(code, seconds)
    lines <- paste(quoted(reply$state), quoted(reply$error), json(reply$value), sep = "\n")
    to_parent(charToRaw(enc2utf8(lines)))
    leave_fork(0L)
  }
  reply <- reply_of(child, seconds)
  reply$printed <- captured()
  reply
}

# The child's answer, or why there is none; it has ended afterwards.
reply_of <- function(child, seconds) {
  until <- proc.time()[["elapsed"]] + seconds + 0.5
  on.exit({
    end_family(child$pid)
    for (try in 1:100) {
      if (!dir.exists(sprintf("/proc/%d", child$pid))) break
      if (is.integer(wait_for(child, 0))) from_child(child) # its last word closes its pipe
      pause(0.005)
    }
  })
  repeat {
    left <- until - proc.time()[["elapsed"]]
    if (left <= 0) return(answer("too long", error = "too long"))
    ready <- wait_for(child, left)
    if (is.integer(ready) && child$pid %in% ready) {
      said <- from_child(child)
      if (is.raw(said)) return(parse_reply(rawToChar(said)))
      return(answer("error", error = "the expression ended its process"))
    }
    if (is.null(ready)) return(answer("error", error = "the expression ended its process"))
  }
}

# Three lines of JSON, which stay the text that they are.
parse_reply <- function(text) {
  Encoding(text) <- "UTF-8"
  parts <- strsplit(text, "\n", fixed = TRUE)[[1L]]
  if (length(parts) != 3L) return(answer("error", error = "the expression spoiled its answer"))
  answer(raw_json(parts[1L]), raw_json(parts[3L]), raw_json(parts[2L]))
}

# Ends a process and those it started.
end_family <- function(pid) {
  file <- sprintf("/proc/%d/task/%d/children", pid, pid)
  below <- tryCatch(suppressWarnings(scan(file, 1L, quiet = TRUE)), error = function(e) integer())
  kill(pid, 9L)
  for (one in below) end_family(one)
}

# IRdisplay's way to the page.
show_bundle <- function(data, metadata = NULL) {
  take_stream()
  text <- data[["text/plain"]]
  if (is.null(text)) text <- Find(is.character, data[startsWith(names(data), "text/")])
  picture <- any(startsWith(names(data), "image/"))
  add_output("display", paste(as.character(text), collapse = "\n"), picture)
}

serve <- function() suspendInterrupts(serve_all())

serve_all <- function() {
  repeat {
    message <- receive()
    if (is.null(message)) break
    switch(message$do,
      play = play(message),
      look = send(look(message$name)),
      ask = send(ask(message$code, message$seconds)),
      remote = send(list(event = "remote", body = remote(message$body, message$seconds))),
      end = break
    )
  }
  QUIT(save = "no", status = 0L, runLast = FALSE)
}
