// The work beside the rubric: a border that moves, on a narrow page two tabs, and a tab for each file.
"use strict";

const SPLIT = "grader-review-split";
const SIDE = "grader-review-side";
const STEP = 2; // percent that an arrow key moves the border by
const narrow = window.matchMedia("(max-width: 61.99rem)");

const watchSplit = () => {
  const bar = find("split");
  const [least, most, usual] = ["min", "max", "now"].map((name) => Number(bar.getAttribute(`aria-value${name}`)));
  let share = usual;
  const move = (wanted) => {
    share = Math.min(Math.max(wanted, least), most);
    bar.parentElement.style.setProperty("--work", `${share}%`);
    bar.setAttribute("aria-valuenow", String(Math.round(share)));
  };
  const settle = (wanted) => {
    move(wanted);
    remember("localStorage", SPLIT, String(share));
  };
  const kept = Number(remember("localStorage", SPLIT));
  if (kept) move(kept);
  bar.hidden = false;
  bar.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: share - STEP, ArrowRight: share + STEP, Home: least, End: most }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    settle(to);
  });
  bar.addEventListener("pointerdown", (event) => {
    bar.setPointerCapture(event.pointerId);
    document.getSelection().empty();
  });
  bar.addEventListener("pointermove", (event) => {
    if (!bar.hasPointerCapture(event.pointerId)) return;
    const box = bar.parentElement.getBoundingClientRect();
    move((100 * (event.clientX - box.left)) / box.width);
  });
  bar.addEventListener("lostpointercapture", () => settle(share));
  bar.addEventListener("dblclick", () => settle(usual));
};

// On a narrow page one of the two is shown; each keeps the place to which it was scrolled.
const scrolled = {};
const showSide = (side) => {
  const page = document.querySelector("[data-review]");
  if (page.dataset.side) scrolled[page.dataset.side] = window.scrollY;
  page.dataset.side = side;
  for (const link of document.querySelectorAll("[data-side-of]")) {
    const here = link.dataset.sideOf === side;
    link.classList.toggle("active", here);
    if (here) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  remember("sessionStorage", SIDE, side);
  if (narrow.matches && scrolled[side] !== undefined) window.scrollTo(0, scrolled[side]);
};

// Of several files one is shown.
let shownFile = "";
const showFile = (id) => {
  const links = [...document.querySelectorAll("[data-file]")];
  if (!links.length) return;
  const names = links.map((link) => link.hash.slice(1));
  shownFile = names.includes(id) ? id : names[0];
  for (const [number, link] of links.entries()) {
    const here = names[number] === shownFile;
    document.getElementById(names[number]).hidden = !here;
    link.classList.toggle("active", here);
    if (here) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
};

// Before something is scrolled to: its side and its file are shown, and its folds are open.
const reveal = (element) => {
  const file = element.closest("details.document");
  if (file?.hidden) showFile(file.id);
  for (let fold = element.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  const side = element.closest("#work, #rubric");
  if (narrow.matches && side) showSide(side.id);
};

const goTo = (element, block = "center") => {
  reveal(element);
  if (element.tabIndex < 0) element.tabIndex = -1;
  element.focus({ preventScroll: true });
  element.scrollIntoView({ block });
};

const watchPanes = () => {
  watchSplit();
  showSide(remember("sessionStorage", SIDE) === "rubric" ? "rubric" : "work");
  showFile("");
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-side-of], [data-file]");
    if (!link) return;
    event.preventDefault();
    if (link.dataset.sideOf) showSide(link.dataset.sideOf);
    else showFile(link.hash.slice(1));
  });
  document.addEventListener("grader:merged", () => showFile(shownFile));
};
