// Messages after a form: they stay long enough to read, longer with a button, and while they are in use.
"use strict";

const MOST_TOASTS = 3; // at a time

const toasts = {
  region: document.getElementById("toasts"),
  taken: 0,

  // Shows the messages of a page that a script loaded. A live region says only what comes into it.
  take(page) {
    const found = [...page.querySelectorAll("#toasts > .toast")];
    for (const toast of found) {
      toast.remove();
      toast.querySelector("p").id = `message-${++toasts.taken}`; // pages number their own from 1
      toast.querySelector("[data-undo]")?.setAttribute("aria-describedby", `message-${toasts.taken}`);
    }
    window.requestAnimationFrame(() => {
      toasts.region.append(...found);
      for (const old of [...toasts.region.querySelectorAll(".toast")].slice(0, -MOST_TOASTS)) old.remove();
      found.forEach(toasts.watch);
    });
  },

  close(toast) {
    const focused = toast.contains(document.activeElement);
    toast.remove();
    if (focused) (toasts.region.querySelector("button") ?? document.getElementById("main")).focus();
  },

  watch(toast) {
    const inUse = () => document.hidden || toast.matches(":hover, :focus-within");
    const stays = Math.max(toast.querySelector("[data-undo]") ? 20000 : 8000, 80 * toast.textContent.trim().length);
    let timer = 0;
    const plan = () => {
      window.clearTimeout(timer);
      timer = window.setTimeout(() => (inUse() ? plan() : toasts.close(toast)), stays);
    };
    toast.addEventListener("click", (event) => event.target.closest("[data-close]") && toasts.close(toast));
    toast.addEventListener("keydown", (event) => event.key === "Escape" && toasts.close(toast));
    if (toast.matches(".toast-warning, .toast-danger")) return; // until they are closed
    for (const name of ["pointerleave", "focusout"]) toast.addEventListener(name, plan);
    plan();
  },
};
toasts.take(document);
