// Menus, the choice of colours, dialogs, and parts of a page that keep themselves fresh.
"use strict";

const closeMenus = (except) => {
  for (const menu of document.querySelectorAll("details.menu[open], details.ask[open]")) {
    if (!menu.contains(except)) menu.open = false;
  }
};
document.addEventListener("click", (event) => closeMenus(event.target));
document.addEventListener("focusin", (event) => closeMenus(event.target));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const menu = event.target.closest?.("details.menu[open], details.ask[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

// On a narrow page tabs are one row that scrolls, to the one that is shown.
for (const tab of document.querySelectorAll(".tabs .active")) {
  const row = tab.closest(".tabs");
  row.scrollLeft = tab.offsetLeft - row.offsetLeft - (row.clientWidth - tab.offsetWidth) / 2;
}

// A filter that has the focus goes with Delete or Backspace, too.
document.addEventListener("keydown", (event) => {
  if (["Delete", "Backspace"].includes(event.key) && event.target.matches?.("[data-chip]")) event.target.click();
});

for (const choice of document.querySelectorAll("[data-theme-choice]")) {
  choice.hidden = false;
  choice.addEventListener("click", (event) => {
    if (event.target.value) theme.choose(event.target.value);
  });
}
theme.apply();

// <button data-opens="ID"> opens the <dialog> of that id; <button data-closes> in it closes it
document.addEventListener("click", (event) => {
  const opener = event.target.closest?.("[data-opens]");
  if (opener) document.getElementById(opener.dataset.opens)?.showModal();
  event.target.closest?.("[data-closes]")?.closest("dialog")?.close();
});

// <div data-fresh="SECONDS" id="…">: loaded again now and then while the page is looked at, until paused, or until it
// comes without data-fresh; from the address data-from, else from that of the page
const keepFresh = (region) => {
  const every = 1000 * Number(region.dataset.fresh);
  const button = document.querySelector(`[data-pauses="${region.id}"]`);
  const told = document.querySelector(`[data-as-of="${region.id}"]`);
  let timer = 0;
  let paused = false;
  let shown = "";

  const inUse = () => {
    const selection = document.getSelection();
    return region.contains(document.activeElement) || (!selection.isCollapsed && region.contains(selection.anchorNode));
  };
  const load = async () => {
    const answer = await fetch(region.dataset.from || window.location.href, { credentials: "same-origin", headers: { Accept: "text/html" } });
    if (answer.redirected || !answer.ok) return answer.redirected ? "stop" : "";
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById(region.id);
    toasts.take(page);
    if (!fresh || inUse()) return "";
    if (told) told.textContent = new Date().toLocaleTimeString(document.documentElement.lang);
    const markup = fresh.innerHTML;
    if (markup === shown) return ""; // nothing is read out again
    shown = markup;
    const open = new Set([...region.querySelectorAll("details[open][data-key]")].map((one) => one.dataset.key));
    for (const one of fresh.querySelectorAll("details[data-key]")) one.open = open.has(one.dataset.key);
    region.replaceChildren(...fresh.childNodes);
    if (typeof localiseTimes === "function") localiseTimes(region);
    region.dispatchEvent(new Event("grader:fresh", { bubbles: true }));
    return fresh.dataset.fresh ? "" : "stop";
  };
  const plan = (pause = every) => {
    window.clearTimeout(timer);
    if (!paused && !document.hidden) timer = window.setTimeout(tick, pause);
  };
  const tick = async () => {
    let end = "";
    try {
      end = await load();
      region.classList.remove("stale");
    } catch {
      region.classList.add("stale");
    }
    if (end !== "stop") plan();
  };
  document.addEventListener("visibilitychange", () => plan(250));
  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => {
      paused = !paused;
      button.setAttribute("aria-pressed", String(paused));
      plan(250);
    });
  }
  plan();
};
document.querySelectorAll("[data-fresh]").forEach(keepFresh);

// what somebody wrote in this browser goes with them when they sign out
for (const form of document.querySelectorAll("[data-signs-out]")) {
  form.addEventListener("submit", () => {
    try {
      const drafts = Object.keys(window.localStorage).filter((name) => name.startsWith("grader-code-"));
      for (const name of drafts) window.localStorage.removeItem(name);
    } catch {
      // no storage in this browser
    }
  });
}
