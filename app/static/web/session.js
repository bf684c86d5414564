// Before a form is sent: whether its reader is still signed in. If not, a dialog signs them in, and nothing typed is lost.
"use strict";

const YOUNG_MS = 60_000;
const MOST_KEPT = 512 * 1024; // as in app/web/kept_forms.py

const signIn = {
  reader: document.body.dataset.reader,
  template: document.getElementById("sign-in-again"),
  leaves: () => false, // whether another script sends a form, and asks for `ready` by the answer
  sent: new WeakSet(), // forms that may go
  asked: new WeakSet(), // forms whose answer is awaited
  answered: Date.now(), // when the server gave this page, or said who is signed in

  // Who is signed in now, and the token for forms; null when the server does not answer.
  async state() {
    const url = signIn.template.content.firstElementChild.dataset.session;
    try {
      const answer = await fetch(url, { credentials: "same-origin", cache: "no-store" });
      const found = answer.ok ? await answer.json() : null;
      if (found) signIn.answered = Date.now();
      return found;
    } catch {
      return null;
    }
  },

  // Whether a form of a young page goes unasked: if its session ended all the same, the answer keeps all that it has.
  mayGo(form) {
    if (Math.abs(Date.now() - signIn.answered) > YOUNG_MS || form.dataset.anyone !== undefined) return false;
    const fields = [...new FormData(form)];
    const lost = form.querySelector("input[type=password]") || fields.some(([, value]) => value instanceof File && value.name);
    return !lost && new URLSearchParams(fields).toString().length < MOST_KEPT;
  },

  // Whether two forms would send the same.
  same(one, other) {
    const [sent, wanted] = [one, other].map((form) => {
      const data = new FormData(form);
      for (const name of ["csrf_token", "seen"]) data.delete(name);
      return JSON.stringify([form.action, ...data]);
    });
    return sent === wanted;
  },

  renew(token) {
    for (const field of document.querySelectorAll("input[name=csrf_token]")) field.value = token;
    for (const field of signIn.template.content.querySelectorAll("input[name=csrf_token]")) field.value = token;
  },

  // Whether the reader of this page may send it now; asks them to sign in if need be.
  async ready(anyone = false) {
    const now = await signIn.state();
    if (now === null) return true; // the form says so itself
    signIn.renew(now.token);
    return anyone || String(now.user) === signIn.reader || signIn.ask(now);
  },

  ask(now) {
    const dialog = signIn.template.content.firstElementChild.cloneNode(true);
    const problem = dialog.querySelector("[data-problem]");
    const tell = (text) => {
      problem.textContent = text;
      problem.hidden = text === "";
    };
    const check = (state) => {
      if (state === null) tell(say("The server cannot be reached. Try again in a minute."));
      else if (state.user === null) tell(say("You are not signed in."));
      else if (String(state.user) === signIn.reader) return true;
      else
        tell(
          say("You are signed in as %(other)s. Nothing was sent, because %(name)s filled in this form.", {
            other: state.name,
            name: problem.dataset.name,
          }),
        );
      if (state) signIn.renew(state.token);
      return false;
    };
    return new Promise((resolve) => {
      const end = (result) => {
        resolve(result);
        dialog.remove();
      };
      const again = async () => {
        const state = await signIn.state();
        if (!check(state)) return;
        signIn.renew(state.token);
        end(true);
      };
      dialog.addEventListener("close", () => end(false));
      dialog.querySelector("[data-again]").addEventListener("click", again);
      const enter = (form) => {
        form.addEventListener("submit", async (event) => {
          event.preventDefault();
          const answer = await fetch(form.action, {
            method: "POST",
            body: new URLSearchParams(new FormData(form)),
            credentials: "same-origin",
            redirect: "manual",
          }).catch(() => null);
          const secret = form.elements.password ?? form.elements.one_time_code;
          secret.value = "";
          if (answer === null || answer.type === "opaqueredirect") {
            await again();
            return;
          }
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          tell(page.querySelector("main .alert-danger, main p")?.textContent.trim() ?? "");
          const next = form.elements.password ? page.querySelector("main form[data-second-factor]") : null;
          if (next === null) {
            secret.focus();
            return;
          }
          const step = document.importNode(next, true); // the form for the second factor's code
          step.className = "";
          form.replaceWith(step);
          enter(step);
          step.elements.one_time_code.focus();
        });
      };
      const form = dialog.querySelector("form");
      if (form) enter(form);
      document.body.append(dialog);
      dialog.showModal();
      if (now.user !== null) check(now);
    });
  },
};

document.addEventListener(
  "submit",
  async (event) => {
    const { target: form, submitter } = event;
    if (form.getAttribute("method")?.toLowerCase() !== "post" || form.closest("dialog[data-session]")) return;
    if (signIn.sent.delete(form) || signIn.leaves(form) || signIn.mayGo(form)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (signIn.asked.has(form)) return;
    signIn.asked.add(form);
    const ready = await signIn.ready(form.dataset.anyone !== undefined);
    signIn.asked.delete(form);
    if (!ready) return;
    // a page that keeps itself fresh may have it anew
    const now = form.isConnected ? form : [...document.forms].find((one) => signIn.same(one, form));
    if (!now) return;
    const button = now === form ? submitter : [...now.elements].find((one) => one.matches("button") && one.name === submitter?.name && one.value === submitter?.value);
    signIn.sent.add(now);
    now.requestSubmit(button ?? null);
    signIn.sent.delete(now); // it was not valid
  },
  true,
);
