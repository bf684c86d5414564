// Keys, focus and small helps of the review pages. Everything also works without this file.
"use strict";

const find = (name, root = document) => root.querySelector(`[data-rv="${name}"]`);
const KEYS = "grader-review-keys";
const MOVED = "grader-review-moved";

const remember = (kind, name, value) => {
  try {
    if (value === null) window[kind].removeItem(name);
    else if (value !== undefined) window[kind].setItem(name, value);
    return window[kind].getItem(name);
  } catch {
    return null; // storage is off; then nothing is remembered
  }
};

const keysOn = () => remember("localStorage", KEYS) !== "off";
const visible = (element) => element?.checkVisibility() ?? false;

// Fields keep their keys. So does what a screen reader or the browser means, with Ctrl, Alt or Meta.
const isTyping = (target) =>
  target instanceof HTMLElement &&
  (target.isContentEditable ||
    ["SELECT", "TEXTAREA"].includes(target.tagName) ||
    (target.tagName === "INPUT" && !["checkbox", "radio", "button", "submit"].includes(target.type)));

let current = null; // the criterion that was chosen last
let awaitsLevel = false;

const criteria = () => [...document.querySelectorAll("[data-criterion]")];

const choose = (section) => {
  if (!section) return false;
  current = section;
  goTo(section, "start");
  showEvidence(section);
  return true;
};

const chosen = () => current ?? criteria()[0] ?? null;

const openEdit = (section) => {
  const details = section?.querySelector("details.edit");
  if (!details) return null;
  current = section;
  reveal(details);
  details.open = true;
  return details.querySelector("form[data-points]");
};

// The points of a level go into the field; the reason is asked for, and Enter saves.
const giveLevel = (section, level) => {
  const form = openEdit(section);
  const button = form?.querySelector(`[data-level="${level}"]`);
  if (!button) return false;
  form.elements.points.value = button.value;
  for (const one of form.querySelectorAll("[data-level]")) one.classList.toggle("here", one === button);
  form.elements.reason.focus();
  return true;
};

const stepLevel = (step) => {
  const section = chosen();
  const form = openEdit(section);
  if (!form) return false;
  const levels = [...form.querySelectorAll("[data-level]")];
  const points = Number(form.elements.points.value.replace(",", ".")) || 0;
  const above = levels.find((one) => Number(one.value) > points + 0.005);
  const below = levels.findLast((one) => Number(one.value) < points - 0.005);
  const next = step > 0 ? above : below;
  return next ? giveLevel(section, next.dataset.level) : true;
};

const move = (step) => {
  const link = find(step > 0 ? "next" : "previous");
  if (document.querySelector(".review-open")) {
    if (!link) return false;
    remember("sessionStorage", MOVED, "1");
    link.click();
    return true;
  }
  const links = [...document.querySelectorAll(".review-list a")];
  if (!links.length) return false;
  const at = links.indexOf(document.activeElement);
  links[at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + step, 0), links.length - 1)].focus();
  return true;
};

const press = (name) => {
  const button = find(name);
  if (!visible(button)) return false;
  if (name === "accept") remember("sessionStorage", MOVED, "1");
  button.click();
  if (button.matches("details[open] > summary")) button.parentElement.querySelector("button").focus();
  return true;
};

const search = () => {
  const drawer = find("drawer");
  if (drawer) drawer.open = true;
  const field = find("search");
  if (!visible(field)) return false;
  field.focus();
  field.select();
  return true;
};

const help = () => {
  const box = find("keys");
  if (!box.open) box.showModal();
  return true;
};

const actions = {
  j: () => move(1),
  k: () => move(-1),
  e: () => {
    const form = openEdit(chosen());
    form?.elements.points.focus();
    form?.elements.points.select();
    return form !== null;
  },
  a: () => press("accept"),
  r: () => press("release"),
  l: () => {
    awaitsLevel = chosen() !== null;
    return awaitsLevel;
  },
  "+": () => stepLevel(1),
  "-": () => stepLevel(-1),
  "/": search,
  "?": help,
};

const onKey = (event) => {
  const form = (event.ctrlKey || event.metaKey) && event.key === "Enter" && event.target.form;
  if (form && form.closest("[data-review]") && !event.isComposing) {
    event.preventDefault();
    form.requestSubmit();
  }
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.altKey || event.metaKey) return;
  if (find("keys")?.open) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (!keysOn() || event.repeat) return;
  const digit = /^[0-9]$/.test(event.key);
  const wanted = awaitsLevel;
  awaitsLevel = false;
  let done = false;
  if (digit && wanted) done = giveLevel(chosen(), event.key);
  else if (digit) done = choose(criteria()[Number(event.key) - 1]);
  else if (Object.hasOwn(actions, event.key)) done = actions[event.key]();
  if (done) event.preventDefault();
};

// A saved comment that was picked goes into the text.
const onInput = ({ target: field }) => {
  if (field.dataset?.rv !== "saved") return;
  if (![...field.list.options].some((one) => one.value === field.value)) return;
  const text = field.form.elements.text;
  text.value = text.value ? `${text.value}\n\n${field.value}` : field.value;
  field.value = "";
  text.focus();
};

const two = (number) => String(number).padStart(2, "0");

// The server works in UTC; people read and write their own time.
const watchDate = (form) => {
  const field = form.elements.at;
  const label = find("zone", form);
  label.textContent = label.dataset.local;
  if (field.value) {
    const date = new Date(`${field.value}Z`);
    const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    field.value = `${day}T${two(date.getHours())}:${two(date.getMinutes())}`;
  }
  form.addEventListener("submit", () => {
    const date = new Date(field.value);
    form.elements.offset.value = Number.isNaN(date.getTime()) ? "0" : String(date.getTimezoneOffset());
  });
  field.addEventListener("input", () => {
    form.elements.at_date.checked = true;
  });
};

const arrive = () => {
  const told = find("alert");
  const named = window.location.hash.length > 1 ? document.getElementById(window.location.hash.slice(1)) : null;
  const moved = remember("sessionStorage", MOVED) === "1";
  remember("sessionStorage", MOVED, null);
  if (told) told.focus();
  else if (named) {
    reveal(named);
    named.focus();
    if (named.dataset.criterion) current = named;
  } else if (moved) find("title")?.focus();
};

// What is only of use with this file; also in parts that were replaced.
const prepare = () => {
  for (const one of document.querySelectorAll('[data-rv="hint"], [data-rv="help"]')) one.hidden = false;
  if (current) current = document.getElementById(current.id);
};

const watchKeys = () => {
  const on = find("keys-on");
  on.checked = keysOn();
  on.addEventListener("change", () => remember("localStorage", KEYS, on.checked ? "on" : "off"));
  document.addEventListener("click", (event) => {
    if (event.target.closest?.('[data-rv="help"]')) help();
  });
  document.addEventListener("keydown", onKey);
};

const watchSubmission = () => {
  watchPanes();
  watchLines();
  watchSaving();
  find("drawer").addEventListener("toggle", (event) => {
    event.target.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  });
  document.addEventListener("focusin", (event) => {
    current = event.target.closest?.("[data-criterion]") ?? current;
  });
  document.addEventListener("input", onInput);
  document.addEventListener("grader:merged", prepare);
  arrive();
};

const setUp = () => {
  document.querySelectorAll('[data-rv="date"]').forEach(watchDate);
  if (!document.querySelector("[data-review]")) return;
  prepare();
  if (document.querySelector(".review-open")) watchSubmission();
  watchKeys();
};

document.addEventListener("DOMContentLoaded", setUp);
