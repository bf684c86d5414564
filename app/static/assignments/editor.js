// The rubric editor without reloads, dates in the writer's own zone, and progress of what is under way.
"use strict";

const FOLDS = "[data-fold], [data-check]";

const focusOn = (id) => {
  const part = id && document.getElementById(id);
  if (!part) return;
  for (let fold = part.querySelector(":scope > [data-fold], :scope > [data-check]") || part; fold; fold = fold.parentElement?.closest("details")) {
    if (fold.matches("details")) fold.open = true;
  }
  const field = part.matches("input, textarea, select") ? part : [...part.querySelectorAll("input:not([type=hidden]), textarea, select")].find((one) => one.checkVisibility());
  (field || part).focus();
};

// After a move the same button is under the finger again; a criterion stays folded.
const focusMoved = (id, verb) => {
  const part = document.getElementById(id);
  const buttons = [...part.querySelectorAll(":scope > .part-buttons button")];
  const again = verb === "title" ? part.querySelector(":scope > details > summary") : buttons.find((one) => one.value.startsWith(`${verb} `));
  (again || buttons[0] || part).focus();
};

// What is written in a part, wherever it is moved to: parts that were unfolded stay so.
const content = (part) => JSON.stringify([...part.querySelectorAll("input, textarea, select")].map((one) => (one.type === "checkbox" ? one.checked : one.value)));

// The server does what a button says; only the editor is exchanged, so nothing jumps.
async function act(form, value, verb = value.split(" ")[0]) {
  const open = new Set([...form.querySelectorAll(FOLDS)].filter((one) => one.open).map(content));
  const data = new URLSearchParams(new FormData(form));
  data.set("do", value);
  const answer = await fetch(form.action, { method: "POST", body: data, headers: { Accept: "text/html" } });
  if (answer.redirected) { window.location.assign(answer.url); return; }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.querySelector("[data-editor]");
  if (!fresh) { form.submit(); return; }
  document.querySelector("[data-editor]").replaceWith(fresh);
  for (const one of fresh.querySelectorAll(FOLDS)) one.open ||= open.has(content(one));
  watch(fresh);
  dirty = true;
  const moved = fresh.querySelector("[data-moved]");
  document.querySelector("[data-live]").textContent = moved ? moved.textContent : "";
  if (value === "preview") document.getElementById("preview")?.focus();
  else if (fresh.querySelector("#problems")) fresh.querySelector("#problems").focus();
  else if (moved) focusMoved(fresh.dataset.at, verb);
  else if (/^remove criteria\.\d+$/.test(value) && fresh.dataset.at.includes(".")) focusMoved(fresh.dataset.at, "title");
  else focusOn(fresh.dataset.at);
}

// Criteria are moved by a handle, or by Alt and an arrow where their title has the focus.
let moves = Promise.resolve();
const move = (form, value) => { moves = moves.then(() => act(form(), value(), "title")).catch(() => {}); };

function drag(form, handle, down) {
  const part = handle.closest("[data-sort]");
  const rows = [...part.parentElement.children].filter((one) => one.matches("[data-sort]"));
  const others = rows.filter((one) => one !== part);
  const from = rows.indexOf(part);
  const stop = new AbortController();
  let to = from;
  const clear = () => rows.forEach((one) => one.classList.remove("drop-before", "drop-after", "dragged"));
  const over = (event) => {
    to = others.filter((one) => { const box = one.getBoundingClientRect(); return box.top + box.height / 2 < event.clientY; }).length;
    clear();
    part.classList.add("dragged");
    if (to !== from) (others[to] || others[to - 1]).classList.add(others[to] ? "drop-before" : "drop-after");
    if (event.clientY < 70) window.scrollBy(0, -14);
    else if (event.clientY > window.innerHeight - 90) window.scrollBy(0, 14);
  };
  const end = (dropped) => {
    stop.abort();
    clear();
    if (dropped && to !== from) move(() => form, () => `move ${part.id} ${to}`);
  };
  handle.setPointerCapture(down.pointerId);
  handle.addEventListener("pointermove", over, { signal: stop.signal });
  handle.addEventListener("pointerup", () => end(true), { signal: stop.signal });
  handle.addEventListener("pointercancel", () => end(false), { signal: stop.signal });
  window.addEventListener("keydown", (event) => { if (event.key === "Escape") end(false); }, { signal: stop.signal });
}

function sortable(form) {
  for (const handle of form.querySelectorAll("[data-handle]")) {
    handle.hidden = false;
    handle.addEventListener("pointerdown", (event) => { if (event.button === 0) { event.preventDefault(); drag(form, handle, event); } });
  }
  form.addEventListener("keydown", (event) => {
    const verb = { ArrowUp: "up", ArrowDown: "down" }[event.key];
    if (!verb || !event.altKey || !event.target.matches("[data-sort] > details > summary")) return;
    event.preventDefault();
    move(() => document.activeElement.closest("[data-form]"), () => `${verb} ${document.activeElement.closest("[data-sort]").id}`);
  });
}

// The title of a folded criterion says what is typed in it.
function retitle(field) {
  const part = field.closest("[data-sort]");
  for (const [name, mark] of [["title", "[data-title]"], ["points", "[data-points]"]]) {
    if (part && field.name === `${part.id}.${name}` && field.value.trim()) part.querySelector(mark).textContent = field.value;
  }
}

// What a check says about solution and starter, half a second after the last key.
const asking = new Map();
async function preview(form, check) {
  asking.get(check)?.abort();
  const stop = new AbortController();
  asking.set(check, stop);
  const own = `${check.id}.`, where = `${check.id.split(".").slice(0, 2).join(".")}.where`;
  const data = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (name === "csrf_token" || name === "equivalents") data.append(name, value);
    else if (name === where) data.append("criteria.0.where", value);
    else if (name.startsWith(own)) data.append(`criteria.0.checks.0.${name.slice(own.length)}`, value);
  }
  const answer = await fetch(form.dataset.form, { method: "POST", body: data, headers: { Accept: "text/html" }, signal: stop.signal });
  if (!answer.ok) return;
  const said = new DOMParser().parseFromString(await answer.text(), "text/html").body;
  check.querySelector("[data-preview]").replaceChildren(...said.childNodes);
}

let later = 0;
function previewing(form) {
  const ask = (check) => preview(form, check).catch(() => { /* the next key asks again */ });
  form.addEventListener("input", (event) => {
    const check = event.target.closest("[data-previewed]");
    if (!check) return;
    clearTimeout(later);
    later = setTimeout(ask, 500, check);
  });
  const unfolded = (one) => { if (one.open && one.matches("[data-previewed] > [data-check]")) ask(one.parentElement); };
  form.addEventListener("toggle", (event) => unfolded(event.target), true);
  form.querySelectorAll("[data-previewed] > [data-check][open]").forEach(unfolded);
}

let dirty = false;

function total(form) {
  let sum = 0;
  for (const field of form.querySelectorAll('[name$=".points"]')) {
    const bonus = form.elements[field.name.replace(/points$/, "bonus")];
    if (bonus && bonus.checked) continue;
    const value = Number(field.value.replace(",", "."));
    if (Number.isFinite(value)) sum += value;
  }
  const place = document.querySelector("[data-total]");
  if (place) place.textContent = String(Math.round(sum * 100) / 100);
}

function watch(editor) {
  const form = editor.querySelector("[data-form]");
  if (!form) return;
  form.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (!button || button.value === "save" || button.value === "next") { dirty = false; return; }
    event.preventDefault();
    button.setAttribute("aria-busy", "true");
    act(form, button.value).catch(() => { dirty = false; button.click(); });
  });
  form.addEventListener("input", (event) => { dirty = true; total(form); retitle(event.target); });
  sortable(form);
  previewing(form);
  for (const one of editor.querySelectorAll("[data-scripted]")) one.hidden = false;
}

window.addEventListener("beforeunload", (event) => { if (dirty) event.preventDefault(); });

// Dates come in UTC; somebody whose browser knows another zone sees and types them in that one.
function dates(place) {
  const zone = place.querySelector("[data-zone]");
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone.value !== "UTC" || !own || own === "UTC" || ![...zone.options].some((one) => one.value === own)) return;
  for (const field of place.querySelectorAll("[data-date]")) {
    if (!field.value) continue;
    const moment = new Date(`${field.value}Z`);
    if (Number.isNaN(moment.valueOf())) continue;
    const parts = Object.fromEntries(new Intl.DateTimeFormat("en-GB", { timeZone: own, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit" }).formatToParts(moment).map((one) => [one.type, one.value]));
    field.value = `${parts.year}-${parts.month}-${parts.day}T${parts.hour}:${parts.minute}`;
  }
  zone.value = own;
}

// Ask how far it is; when it is over, the page is read again.
function poll(place) {
  const ask = async () => {
    try {
      const answer = await fetch(place.dataset.poll, { headers: { Accept: "application/json" } });
      if (answer.status === 404) { window.location.reload(); return; }
      if (answer.ok) {
        const now = await answer.json();
        if (now.over) { window.location.reload(); return; }
        const said = place.querySelector("[data-said]");
        if (said && now.said) said.textContent = now.said;
        const ended = place.querySelector("[data-ended]");
        if (ended && now.ended !== undefined) { ended.textContent = now.ended; place.querySelector("[data-bar]").value = now.ended; }
      }
    } catch { /* the server is away for a moment: ask again */ }
    setTimeout(ask, document.hidden ? 8000 : 2000);
  };
  setTimeout(ask, 1500);
}

// A button pressed before this script came is answered with a whole page: it ends at the same place.
document.querySelectorAll("[data-editor]").forEach((editor) => {
  watch(editor);
  const problems = editor.querySelector("#problems");
  if (problems) problems.focus();
  else focusOn(editor.dataset.at || window.location.hash.slice(1));
});

// A short name made of the title, until somebody writes one of their own.
const slugOf = (title) => title.toLowerCase().replace(/ä/g, "ae").replace(/ö/g, "oe").replace(/ü/g, "ue").replace(/ß/g, "ss").normalize("NFD").replace(/[^a-z0-9]+/g, (gap) => (/^\p{M}+$/u.test(gap) ? "" : "-")).replace(/^-+|-+$/g, "").slice(0, 64).replace(/-+$/, "");
for (const slug of document.querySelectorAll("[data-slug]")) {
  const title = document.getElementById(slug.dataset.slug);
  let made = slug.value;
  title.addEventListener("input", () => {
    if (slug.value !== made && slug.value !== "") return;
    made = slug.value = slugOf(title.value);
  });
}

document.querySelectorAll("[data-dates]").forEach(dates);
document.querySelectorAll("[data-poll]").forEach(poll);
