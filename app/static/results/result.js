// Jumping through the comments of a result, by buttons and by the keys n and p; opening folds for the printer.
"use strict";
(() => {
  const KEYS = "grader-comment-keys";
  const comments = () => [...document.querySelectorAll("[data-comment]")];

  const keysOn = () => {
    try {
      return window.localStorage.getItem(KEYS) !== "off";
    } catch {
      return true;
    }
  };

  const open = (element) => {
    for (let fold = element.closest("details"); fold; fold = fold.parentElement.closest("details")) {
      fold.open = true;
    }
  };

  const show = (element) => {
    open(element);
    (element.matches("details") ? element.querySelector("summary") : element).focus({ preventScroll: true });
    element.scrollIntoView({ block: "center" });
  };

  const jump = (step) => {
    const all = comments();
    if (all.length === 0) return;
    const at = all.findIndex((one) => one.contains(document.activeElement));
    const next = at < 0 ? (step > 0 ? 0 : all.length - 1) : (at + step + all.length) % all.length;
    show(all[next]);
  };

  const prepare = () => {
    for (const part of document.querySelectorAll("[data-jumps]")) part.hidden = false;
    for (const box of document.querySelectorAll("[data-keys]")) box.checked = keysOn();
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-jump]");
    if (button) jump(Number(button.dataset.jump));
    const link = event.target.closest("a[href^='#']");
    const target = link && document.getElementById(link.getAttribute("href").slice(1));
    if (target && target.closest("[data-result-here]")) {
      event.preventDefault();
      window.history.replaceState(null, "", link.getAttribute("href"));
      show(target);
    }
  });

  document.addEventListener("change", (event) => {
    if (!event.target.matches("[data-keys]")) return;
    try {
      window.localStorage.setItem(KEYS, event.target.checked ? "on" : "off");
    } catch {
      // private windows keep nothing
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]")) return;
    const box = document.querySelector("[data-keys]");
    if (!box || !box.checked) return;
    if (event.key === "n") jump(1);
    if (event.key === "p") jump(-1);
  });

  const opened = [];
  window.addEventListener("beforeprint", () => {
    for (const image of document.querySelectorAll("main img[loading=lazy]")) image.loading = "eager";
    for (const fold of document.querySelectorAll("main details:not([open])")) {
      fold.open = true;
      opened.push(fold);
    }
  });
  window.addEventListener("afterprint", () => {
    for (const fold of opened.splice(0)) fold.open = false;
  });

  document.addEventListener("grader:result", prepare);
  prepare();
})();
