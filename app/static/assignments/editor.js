// The rubric editor without reloads, dates in the writer's own zone, and progress of what is under way.
"use strict";

const focusOn = (id) => {
  const part = id && document.getElementById(id);
  if (!part) return;
  for (let fold = part.querySelector(":scope > [data-check]") || part; fold; fold = fold.parentElement?.closest("details")) {
    if (fold.matches("details")) fold.open = true;
  }
  const field = part.matches("input, textarea, select") ? part : part.querySelector("input:not([type=hidden]), textarea, select");
  (field || part).focus();
};

// What is written in a check, wherever it is moved to: checks that were unfolded stay so.
const content = (check) => JSON.stringify([...check.querySelectorAll("input, textarea, select")].map((one) => (one.type === "checkbox" ? one.checked : one.value)));

// The server does what a button says; only the editor is exchanged, so nothing jumps.
async function act(form, button) {
  const open = new Set([...form.querySelectorAll("[data-check][open]")].map(content));
  const data = new URLSearchParams(new FormData(form));
  data.set("do", button.value);
  button.setAttribute("aria-busy", "true");
  const answer = await fetch(form.action, { method: "POST", body: data, headers: { Accept: "text/html" } });
  if (answer.redirected) { window.location.assign(answer.url); return; }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.querySelector("[data-editor]");
  if (!fresh) { form.submit(); return; }
  document.querySelector("[data-editor]").replaceWith(fresh);
  for (const one of fresh.querySelectorAll("[data-check]")) one.open ||= open.has(content(one));
  watch(fresh);
  dirty = true;
  if (button.value === "preview") document.getElementById("preview")?.focus();
  else if (fresh.querySelector("#problems")) fresh.querySelector("#problems").focus();
  else focusOn(fresh.dataset.at);
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
    act(form, button).catch(() => { dirty = false; button.click(); });
  });
  form.addEventListener("input", () => { dirty = true; total(form); });
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
  else focusOn(editor.dataset.at);
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
