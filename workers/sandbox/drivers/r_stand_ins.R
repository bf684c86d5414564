# Functions that would wait for somebody, leave, or reach for the network, replaced by ones that say so.

note <- function(...) cat("(", sprintf(...), ")\n", sep = "", file = stderr())

put <- function(name, value, package = "base") {
  attached <- function() as.environment(paste0("package:", package))
  places <- if (package == "base") list(baseenv()) else list(asNamespace(package), attached())
  for (place in places) {
    unlockBinding(name, place)
    assign(name, value, envir = place)
    lockBinding(name, place)
  }
}

HOME_FOLDER <- getwd()

stays_inside <- function(folder) {
  inside <- function(parent) folder == parent || startsWith(folder, paste0(sub("/$", "", parent), "/"))
  any(vapply(c(HOME_FOLDER, "/box", "/data", normalizePath(tempdir())), inside, NA))
}

set_folder <- function(original) {
  force(original)
  function(dir) {
    before <- getwd()
    if (!is.character(dir) || length(dir) != 1L) return(original(dir))
    if (!dir.exists(dir)) {
      note("the folder %s does not exist here; staying in %s", dir, before)
    } else if (!stays_inside(normalizePath(dir))) {
      note("the folder %s is none of the work's; staying in %s", dir, before)
    } else {
      return(original(dir))
    }
    invisible(before)
  }
}

# In slices, so that the time limit is seen.
sleep <- function(original) {
  force(original)
  function(time) {
    until <- proc.time()[["elapsed"]] + as.numeric(time)
    while ((left <- until - proc.time()[["elapsed"]]) > 0) original(min(left, 0.2))
    invisible()
  }
}

leave <- function(save = "default", status = 0, runLast = TRUE) {
  note("quit() ends it here")
  signalCondition(structure(class = c("grader_quit", "condition"), list(message = "quit()", call = NULL)))
  stop("the program asked to end itself")
}

TIDYVERSE <- c("ggplot2", "tibble", "tidyr", "readr", "purrr", "dplyr", "stringr", "forcats", "lubridate")

is_installed <- function(package) nzchar(system.file(package = package))

# The tidyverse's parts stand in for the package of that name where it is not installed.
attach_tidyverse <- function(library) {
  here <- vapply(TIDYVERSE, is_installed, NA)
  for (part in TIDYVERSE[here]) {
    suppressPackageStartupMessages(library(part, character.only = TRUE, warn.conflicts = FALSE))
  }
  absent <- TIDYVERSE[!here]
  packageStartupMessage(
    "(tidyverse: attached ", paste(TIDYVERSE[here], collapse = ", "),
    if (length(absent)) paste0("; not here: ", paste(absent, collapse = ", ")), ")"
  )
  invisible(TRUE)
}

# The same function with a question in front, so that its calls, errors and missing arguments stay as they are.
library_with_parts <- function(original) {
  force(original)
  asked <- function(name) identical(name, "tidyverse") && !is_installed(name) && is_installed("dplyr")
  parts <- function() attach_tidyverse(original)
  changed <- original
  body(changed) <- bquote({
    if (!missing(package) &&
      .(asked)(if (character.only) package else as.character(substitute(package)))) {
      return(.(parts)())
    }
    .(body(original))
  })
  changed
}

stand_in <- function() {
  put("setwd", set_folder(setwd))
  put("Sys.sleep", sleep(Sys.sleep))
  put("q", leave)
  put("quit", leave)
  put("library", library_with_parts(library))
  put("readline", function(prompt = "") {
    cat(prompt, "\n", sep = "")
    note("nobody answers here: readline() gives an empty text")
    ""
  })
  put("closeAllConnections", function() {
    while (sink.number() > 0L) sink()
    ours <- vapply(as.list(channel), as.integer, 0L)
    for (one in setdiff(getAllConnections(), c(0:2, ours))) close(getConnection(one))
    invisible()
  })
  put("file.choose", function(new = FALSE) stop("nobody can choose a file here; name the file in the code"))
  put("install.packages", function(pkgs, ...) {
    note("install.packages() does nothing here; packages are installed by whoever runs the server")
    invisible()
  }, "utils")
  put("View", function(x, title) {
    note("View() shows nothing here")
    invisible()
  }, "utils")
}
