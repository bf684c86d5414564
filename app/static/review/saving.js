// Forms are saved without leaving the page: only what changed is replaced, and nothing that was typed is lost.
"use strict";

const STAYS = /\/review\/(change|undo|release|withdraw)$/;
const MOST_KEPT_ALIVE = 60_000; // characters that a browser goes on sending when the page is left
const FIELDS = "input:not([type=hidden]), textarea, select";
const reviewPage = (page = document) => page.querySelector("[data-review][data-stamp]");
const reviewForms = () => [...document.querySelectorAll("[data-review] form[method=post]")];
const fieldsOf = (form) => [...form.querySelectorAll(FIELDS)].filter((field) => field.name);

// The same form in an older and a newer page.
const keyOf = (form) => {
  const data = new FormData(form);
  return [new URL(form.action).pathname, ...["kind", "target", "change"].map((name) => data.get(name) ?? "")].join(" ");
};

const formOf = (key) => reviewForms().find((form) => keyOf(form) === key);
const valuesOf = (form) => JSON.stringify(fieldsOf(form).map((field) => [field.value, field.checked]));

const isTypedField = (field) => {
  if (field.tagName === "SELECT") {
    const usual = [...field.options].findIndex((one) => one.defaultSelected);
    return field.selectedIndex !== Math.max(usual, 0);
  }
  return field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
};
// What was refused and sent back is typed, too, though the page has it as what was there.
const isTyped = (form) => "typed" in form.dataset || fieldsOf(form).some(isTypedField);

const typedForms = (saved) => {
  const typed = reviewForms().filter((form) => form !== saved && isTyped(form));
  return typed.map((form) => [keyOf(form), fieldsOf(form).map((one) => [one.name, one.value, one.checked])]);
};

// Answers with the texts whose form is gone.
const refill = (typed) => {
  const forms = new Map(reviewForms().map((form) => [keyOf(form), form]));
  const left = [];
  for (const [key, fields] of typed) {
    const form = forms.get(key);
    if (!form) {
      left.push(...fields.filter(([name, value]) => value && name !== "keep").map(([, value]) => value));
      continue;
    }
    form.dataset.typed = "";
    for (const [name, value, checked] of fields) {
      const field = fieldsOf(form).find((one) => one.name === name);
      if (!field) continue;
      field.value = value;
      if (field.type === "checkbox") field.checked = checked;
    }
    const fold = form.closest("details");
    if (fold) fold.open = true;
  }
  return left;
};

// Folds are known by the nearest id above them, and their title.
const folds = () =>
  [...document.querySelectorAll("[data-part] details")].map((fold) => {
    return [`${fold.parentElement.closest("[id]").id} ${fold.querySelector("summary").textContent}`, fold];
  });

const placeOfFocus = (saved) => {
  const active = document.activeElement;
  const back = active.closest("form")?.elements.back?.value ?? saved?.elements.back?.value;
  const line = lineAbove(active);
  const place = line && placeOf(line);
  const part = active.closest("[data-part]");
  return { id: active.id, back, start: active.selectionStart, end: active.selectionEnd, part, place };
};

const refocus = ({ id, back, start, end, part, place }) => {
  if (!part || document.activeElement !== document.body) return;
  const line = place && lineAt(place);
  if (line) return goToLine(line);
  const same = id ? document.getElementById(id) : null;
  const element = visible(same) ? same : document.getElementById(back || "student");
  element?.focus({ preventScroll: true });
  if (element === same && typeof start === "number") same.setSelectionRange?.(start, end);
};

const replaceParts = (fresh) => {
  for (const part of document.querySelectorAll("[data-part]")) {
    const other = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
    if (!other || (other.dataset.mark && other.dataset.mark === part.dataset.mark)) continue;
    const top = part.scrollTop;
    part.replaceChildren(...other.childNodes);
    if (other.dataset.mark) part.dataset.mark = other.dataset.mark;
    part.scrollTop = top;
    localiseTimes(part);
  }
};

// `saved` is the form that was sent and need not be kept.
const merge = (fresh, saved = null) => {
  const focus = placeOfFocus(saved);
  const place = closeAt();
  const typed = typedForms(saved);
  const open = new Set(folds().filter(([, fold]) => fold.open && !fold.contains(saved)).map(([key]) => key));
  const at = window.scrollY;
  replaceParts(fresh);
  toasts.take(fresh);
  reviewPage().dataset.stamp = reviewPage(fresh).dataset.stamp;
  const left = refill(typed);
  for (const [key, fold] of folds()) fold.open ||= open.has(key);
  document.dispatchEvent(new Event("grader:merged"));
  window.scrollTo(0, at);
  const line = place && lineAt(place);
  if (line && !saved?.matches("[data-comment-form]")) openAt(line);
  refocus(focus);
  showNewer();
  if (left.length) tell(say("This part of the grade no longer exists. You typed: %(text)s", { text: left.join(" / ") }));
};

const parsed = async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html");
const ask = (address, options = {}) =>
  fetch(address, { credentials: "same-origin", headers: { Accept: "text/html" }, ...options });

const tell = (text) => {
  const box = document.createElement("div");
  box.className = "alert alert-danger";
  box.dataset.rv = "told-here";
  box.setAttribute("role", "alert");
  box.textContent = text;
  find("told-here")?.remove();
  document.querySelector('[data-part="told"]').append(box);
  box.scrollIntoView({ block: "nearest" });
};

// The page as it is now, with what was typed here.
const renew = async () => {
  const fresh = await parsed(await ask(window.location.href));
  if (reviewPage(fresh)) merge(fresh);
};

// Whether it was saved. Who goes on typing in a form that is under way has not saved that.
const send = async (form, data, sent, again = false) => {
  const key = keyOf(form);
  data.set("seen", reviewPage().dataset.stamp);
  data.set("csrf_token", document.querySelector('[data-review] input[name="csrf_token"]').value);
  const body = new URLSearchParams(data);
  const keepalive = String(body).length < MOST_KEPT_ALIVE;
  const answer = await ask(form.action, { method: "POST", body, keepalive });
  const fresh = await parsed(answer);
  if (!reviewPage(fresh)) {
    if (again || !(answer.redirected || [400, 401].includes(answer.status))) throw new Error(answer.statusText);
    if (await signIn.ready()) return send(form, data, sent, true);
    tell(say("Not saved: your session has ended. Your input is still here. Save again to sign in."));
    return false;
  }
  const now = formOf(key);
  merge(fresh, answer.ok && now && valuesOf(now) === sent ? now : null);
  const toast = form.closest(".toast");
  if (toast) toasts.close(toast);
  if (!answer.ok) find("alert")?.focus();
  return answer.ok;
};

// What is typed while the form is under way are keys of the page, not letters of a field.
const leave = (form) => {
  if (!form.contains(document.activeElement)) return;
  if (form.closest(".line-form")) goToLine(lineAt(openedAt));
  else document.getElementById(form.elements.back?.value)?.focus({ preventScroll: true });
};

const trySending = async (form, data, sent) => {
  try {
    return await send(form, data, sent);
  } catch {
    tell(say("Not saved: the server did not answer as expected. Your input is still here. Try again."));
    return false;
  } finally {
    underway -= 1;
    form.removeAttribute("aria-busy");
  }
};

let saving = Promise.resolve(true); // one form after another, each with what the one before made of the page
let underway = 0;
const save = (form, data) => {
  underway += 1;
  form.setAttribute("aria-busy", "true");
  const sent = valuesOf(form);
  leave(form);
  saving = saving.then(() => trySending(form, data, sent));
};

// Forms of this submission that are sent from here, also the Undo of a message.
const isSavedHere = (form) => {
  const { pathname } = new URL(form.action);
  return form.closest("[data-review], .toast") && STAYS.test(pathname) && pathname.startsWith(`${window.location.pathname}/`);
};
// A session that ended is seen by the answer; a form that waits for others is looked at when it goes on.
signIn.leaves = (form) => isSavedHere(form) || (underway > 0 && form.closest("[data-review]"));

const onSubmit = (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post" || !form.closest("[data-review], .toast")) return;
  if (isSavedHere(form)) {
    event.preventDefault();
    if (!form.hasAttribute("aria-busy")) save(form, new FormData(form, event.submitter));
  } else if (underway) {
    event.preventDefault(); // it goes on when all is saved, with the stamp that the page has then
    const key = keyOf(form);
    saving.then((saved) => saved && formOf(key)?.requestSubmit());
  }
};

// Somebody else changed the grade: the page says so and shows it when asked to.
const isNewer = (stamp, than) => {
  const [[round, ...now], [same, ...before]] = [stamp.split("."), than.split(".")];
  return round !== same || now.some((count, index) => Number(count) > Number(before[index]));
};
const showNewer = () => {
  const note = find("newer");
  if (note) note.hidden = !isNewer(note.dataset.stamp, reviewPage().dataset.stamp);
};

const watchSaving = () => {
  document.addEventListener("submit", onSubmit);
  document.addEventListener("grader:fresh", showNewer);
  document.addEventListener("click", (event) => {
    if (event.target.closest?.('[data-rv="renew"]')) renew();
  });
  window.addEventListener("beforeunload", (event) => {
    if (reviewForms().some(isTyped)) event.preventDefault();
  });
};
