// Keys of a criterion, and the next submission without loading the page anew. All works without this file.
"use strict";

const KEYS_ON = "grader-review-keys";
let busy = false;

const across = () => document.querySelector("[data-across]");
const keysDialog = document.querySelector("[data-across-keys]");

const stored = (value) => {
  try {
    if (value !== undefined) window.localStorage.setItem(KEYS_ON, value);
    return window.localStorage.getItem(KEYS_ON);
  } catch {
    return null; // storage is off; then nothing is remembered
  }
};

const isField = (target) =>
  target instanceof HTMLElement &&
  (target.isContentEditable ||
    ["SELECT", "TEXTAREA"].includes(target.tagName) ||
    (target.tagName === "INPUT" && !["checkbox", "radio", "button", "submit"].includes(target.type)));

// What a reader sees first: what went wrong, else whose submission this is.
const arrive = () => {
  for (const button of document.querySelectorAll("[data-across-help]")) button.hidden = false;
  (document.querySelector("[data-across-alert]") ?? document.querySelector("[data-across-title]")).focus();
  if (!document.querySelector("[data-across-alert]")) window.scrollTo(0, 0);
};

// The page of an answer in the place of this one; false where the answer is another page.
const show = (text, address) => {
  const page = new DOMParser().parseFromString(text, "text/html");
  const fresh = page.querySelector("[data-across]");
  if (!fresh) return false;
  across().replaceWith(fresh);
  for (const part of ["main", "header .bar"]) {
    document.querySelector(part).className = page.querySelector(part).className; // pages differ in width
  }
  document.title = page.title;
  if (address !== window.location.href) window.history.pushState(null, "", address);
  // who saves each second would have many
  for (const earlier of document.querySelectorAll("#toasts > .toast:not(.toast-warning, .toast-danger)")) earlier.remove();
  toasts.take(page);
  if (typeof localiseTimes === "function") localiseTimes(fresh);
  arrive();
  return true;
};

// Asks once; where that fails, or leads to another page, the browser goes there by itself.
const load = async (address, form, otherwise) => {
  if (busy) return;
  busy = true;
  across().setAttribute("aria-busy", "true");
  try {
    const how = form ? { method: "POST", body: form } : {};
    const answer = await fetch(address, { credentials: "same-origin", headers: { Accept: "text/html" }, ...how });
    const known = answer.ok || (answer.status >= 400 && answer.status < 500);
    if (known && show(await answer.text(), answer.url)) return;
    if (answer.redirected && answer.ok) window.location.assign(answer.url);
    else otherwise();
  } catch {
    otherwise();
  } finally {
    busy = false;
    across()?.removeAttribute("aria-busy");
  }
};

const byItself = (form, button) => {
  form.dataset.plain = "1";
  form.requestSubmit(button);
};

// The others are sent by the browser itself, which first asks whether the reader is still signed in.
const isSentHere = (form) => !form.dataset.plain && form.method === "post" && form.closest("[data-across]");
signIn.leaves = isSentHere;

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!isSentHere(form)) return;
  event.preventDefault();
  const data = new FormData(form, event.submitter);
  const written = event.submitter?.hasAttribute("data-keeps-text") ? unsaved()?.value : undefined;
  load(form.action, data, () => byItself(form, event.submitter)).then(() => {
    const field = across()?.querySelector("[data-across-text]");
    if (written !== undefined && field) field.value = written;
  });
});

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("[data-across] a[data-key]");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  load(link.href, null, () => window.location.assign(link.href));
});

// What was written and not saved keeps keys from leading away.
const unsaved = () => {
  const field = across().querySelector("[data-across-text]");
  return field && field.value !== field.defaultValue ? field : null;
};

const press = (key) => {
  if (/^[jknu]$/.test(key) && unsaved()) {
    unsaved().focus();
    return true;
  }
  const found = across().querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (!found) return false;
  found.click();
  return true;
};

const write = (selector = "[data-across-text]") => {
  const field = across().querySelector(selector);
  if (!field) return false;
  field.focus();
  field.setSelectionRange(field.value.length, field.value.length);
  return true;
};

// A rubric item of what is written already: it is reused, so the text of this submission stays as it was.
const newItem = () => {
  const form = across().querySelector("[data-new-item]");
  if (!form) return false;
  form.open = true;
  const written = unsaved();
  if (written) {
    const { value, defaultValue } = written;
    form.querySelector("[data-item-text]").value = value.slice(value.startsWith(defaultValue) ? defaultValue.length : 0).trim();
    written.value = written.defaultValue;
  }
  return write("[data-item-text]");
};

const help = () => {
  if (!keysDialog.open) keysDialog.showModal();
  return true;
};

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing || event.altKey || keysDialog.open) return;
  if (isField(event.target)) {
    if (event.key === "Escape") event.target.blur();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      const item = event.target.closest("[data-new-item] form");
      if (item) item.requestSubmit(item.querySelector("button"));
      else press("a");
    }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.repeat || stored() === "off") return;
  const item = event.shiftKey && /^Digit([1-9])$/.exec(event.code); // the digit, whatever stands above it
  const known = { c: () => write(), i: newItem, "?": help };
  const plain = () => /^[0-9ajknu]$/.test(event.key) && press(event.key);
  const done = item ? () => press(`item-${item[1]}`) : (known[event.key] ?? plain);
  if (done()) event.preventDefault();
});

document.addEventListener("click", (event) => {
  if (event.target.closest?.("[data-across-help]")) help();
});
window.addEventListener("popstate", () => window.location.reload());

const keysOn = keysDialog.querySelector("[data-across-keys-on]");
keysOn.checked = stored() !== "off";
keysOn.addEventListener("change", () => stored(keysOn.checked ? "on" : "off"));
for (const button of document.querySelectorAll("[data-across-help]")) button.hidden = false;
