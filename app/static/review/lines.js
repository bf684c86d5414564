// Lines of the work: comments are written at them, and those that a criterion's evidence points to are marked.
"use strict";

const LINES = "#work :is(.line, .cell-name)"; // the name of a cell stands for all of it, with outputs and images
const isLine = (element) => element?.matches(LINES) ?? false;
const numberOf = (line) => line.querySelector(".number")?.textContent.trim() ?? "";
const shownLines = () => [...document.querySelectorAll(LINES)].filter(visible);

// --- evidence -----------------------------------------------------------------------------------------

// `data-lines` names places by their ids, each with a number of lines; the place of a cell is the whole cell.
const linesOf = (section) => {
  const found = [];
  for (const place of (section?.dataset.lines ?? "").split(" ").filter(Boolean)) {
    const [id, count] = place.split(":");
    let element = document.getElementById(id);
    if (!element || element.matches("details")) continue; // a whole file is not marked
    if (!isLine(element)) found.push(element);
    for (let left = Number(count); left > 0 && isLine(element); left -= 1) {
      found.push(element);
      do element = element.nextElementSibling;
      while (element && !isLine(element));
    }
  }
  return found;
};

let pointed = null; // the criterion or comment below the pointer
let focused = null; // the one that has the focus
const mark = () => {
  for (const one of document.querySelectorAll("#work .marked")) one.classList.remove("marked");
  for (const one of linesOf(pointed ?? focused)) one.classList.add("marked");
};

const showEvidence = (section) => {
  const [first] = linesOf(section);
  if (!first || narrow.matches) return;
  reveal(first);
  const [box, pane] = [first.getBoundingClientRect(), first.closest("[data-part]").getBoundingClientRect()];
  if (box.bottom < pane.top || box.top > pane.bottom) first.scrollIntoView({ block: "center" });
};

let cameFrom = null; // the link by which a line was reached; Escape leads back
const followPlace = (event) => {
  const link = event.target.closest?.("#rubric a.place");
  const target = link && document.getElementById(link.hash.slice(1));
  if (!target) return;
  event.preventDefault();
  cameFrom = link;
  goTo(target);
};

// --- comments at lines --------------------------------------------------------------------------------

const placeOf = (line) => ({ place: line.closest(".cell").dataset.place, line: numberOf(line) });
const lineAt = ({ place, line }) =>
  [...document.querySelectorAll(LINES)].find((one) => {
    const other = placeOf(one);
    return other.place === place && other.line === line;
  });
// The line at which a comment stands.
const lineAbove = (element) => {
  let one = element.closest("#work :is(.line, .cell-name, .comment, .line-form)");
  while (one && !isLine(one)) one = one.previousElementSibling;
  return one;
};

let home = null; // where the form is while no line has it
let openedAt = null; // the place of the line that has it

const opened = (form, isOpen) => {
  for (const one of form.querySelectorAll('[data-rv="whole"]')) one.hidden = isOpen;
  find("cancel", form).hidden = !isOpen;
};

const openAt = (line) => {
  const form = document.querySelector("[data-comment-form]");
  const place = placeOf(line);
  if (!form || ![...form.elements.place.options].some((one) => one.value === place.place)) return false;
  closeAt();
  home = form.parentElement;
  openedAt = place;
  form.elements.place.value = place.place;
  form.elements.line.value = place.line;
  const box = document.createElement("div");
  box.className = "line-form";
  const title = document.createElement("p");
  title.className = "line-form-title";
  title.textContent = place.line ? say("Comment on line %(line)s", { line: place.line }) : say("Comment on this cell");
  box.append(title, form);
  let last = line;
  while (last.nextElementSibling?.classList.contains("comment")) last = last.nextElementSibling;
  if (place.line) last.after(box);
  else line.closest(".cell").append(box);
  opened(form, true);
  return true;
};

const closeAt = () => {
  const box = document.querySelector(".line-form");
  if (!box) return null;
  const form = box.querySelector("form");
  const place = openedAt;
  form.elements.place.value = "";
  form.elements.line.value = "";
  opened(form, false);
  home.append(form);
  box.remove();
  openedAt = null;
  return place;
};

// Without a line on the line that has the focus, else on the whole submission.
const comment = (line = document.activeElement.closest?.(LINES)) => {
  const form = document.querySelector("[data-comment-form]");
  if (!form) return false;
  if (!line || !openAt(line)) {
    closeAt();
    reveal(form);
  }
  form.elements.text.focus({ preventScroll: true });
  form.scrollIntoView({ block: "nearest" });
  return true;
};

const cancel = () => {
  const place = closeAt();
  const line = place && lineAt(place);
  if (line) goToLine(line);
};

// A comment is undone at its line; the words of a model are changed in their form.
const followComment = (event) => {
  const link = event.target.closest?.("#work :is([data-undoes], [data-edits])");
  const target = link && document.getElementById(link.hash.slice(1));
  if (!target) return;
  event.preventDefault();
  if ("undoes" in link.dataset) target.querySelector("form").requestSubmit();
  else goTo(target.querySelector("details.edit form").elements.text, "nearest");
};

// --- lines by keys ------------------------------------------------------------------------------------

// One line of a file is reached by Tab, the others from it by arrow keys.
const goToLine = (line, block = "nearest") => {
  for (const one of line.closest(".document").querySelectorAll('[tabindex="0"]')) if (isLine(one)) one.tabIndex = -1;
  line.tabIndex = 0;
  goTo(line, block);
};

const goToWork = () => {
  const lines = shownLines();
  if (narrow.matches) showSide("work");
  const top = document.getElementById("work").getBoundingClientRect().top;
  const line = lines.find((one) => one.getBoundingClientRect().top >= top) ?? lines[0] ?? shownLines()[0];
  if (!line) return false;
  goToLine(line);
  return true;
};

// Escape leads from a comment to its line; what was typed stays.
const onFormKey = (event) => {
  const line = event.key === "Escape" && event.target.closest?.(".line-form") && lineAt(openedAt);
  if (!line) return;
  event.preventDefault();
  goToLine(line);
};

const onLineKey = (event) => {
  if (!isLine(event.target) || event.ctrlKey || event.altKey || event.metaKey) return;
  const lines = shownLines();
  const at = lines.indexOf(event.target);
  const to = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: lines.length - 1 }[event.key];
  if (event.key === "Enter") comment(event.target);
  else if (event.key === "Escape" && cameFrom?.isConnected) goTo(cameFrom, "nearest");
  else if (lines[to]) goToLine(lines[to]);
  else return;
  event.preventDefault();
};

const nameLine = (event) => {
  if (!isLine(event.target)) return;
  const line = numberOf(event.target);
  event.target.setAttribute("role", "group");
  event.target.setAttribute("aria-label", line ? say("Line %(line)s", { line }) : event.target.textContent);
};

const prepareLines = () => {
  for (const file of document.querySelectorAll("#work .document")) {
    const first = [...file.querySelectorAll(".line, .cell-name")].find(isLine);
    if (first) first.tabIndex = 0;
  }
  pointed = null;
  focused = document.activeElement.closest?.("[data-lines]") ?? null;
  mark();
};

const watchLines = () => {
  document.addEventListener("pointerover", (event) => {
    const section = event.target.closest?.("[data-lines]") ?? null;
    if (section === pointed) return;
    pointed = section;
    mark();
  });
  document.addEventListener("focusin", (event) => {
    nameLine(event);
    if (event.target.closest?.("#work")) return; // what led here stays marked
    focused = event.target.closest?.("[data-lines]") ?? null;
    mark();
  });
  document.addEventListener("click", (event) => {
    followPlace(event);
    const number = event.target.closest?.("#work :is(.line > .number, .cell-name)");
    if (number) comment(number.closest(LINES));
    followComment(event);
    if (event.target.closest?.('[data-rv="cancel"]')) cancel();
  });
  document.addEventListener("keydown", onFormKey);
  document.addEventListener("keydown", onLineKey);
  document.addEventListener("grader:merged", prepareLines);
  prepareLines();
};

Object.assign(actions, { c: () => comment(), w: goToWork });
