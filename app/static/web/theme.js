// What all scripts share. Light or dark, before the page is painted: as the reader chose in the menu, else as their system is.
"use strict";
// A text in the reader's language; %(name)s is filled in. The page brings the translations there are.
const say = (text, values = {}) => {
  const given = document.getElementById("texts");
  const known = given ? JSON.parse(given.textContent) : {};
  return (known[text] || text).replace(/%\((\w+)\)s/g, (_, name) => values[name]);
};
document.documentElement.dataset.scripts = "";
const theme = {
  dark: window.matchMedia("(prefers-color-scheme: dark)"),
  chosen() {
    try {
      const kept = window.localStorage.getItem("theme");
      return kept === "light" || kept === "dark" ? kept : "system";
    } catch {
      return "system"; // no storage in this browser
    }
  },
  choose(value) {
    try {
      if (value === "system") window.localStorage.removeItem("theme");
      else window.localStorage.setItem("theme", value);
    } catch {
      // it holds for this page only
    }
    theme.apply(value);
  },
  apply(value = theme.chosen()) {
    const scheme = value === "system" ? (theme.dark.matches ? "dark" : "light") : value;
    document.documentElement.dataset.bsTheme = scheme;
    document.querySelector("meta[name=color-scheme]").content = value === "system" ? "light dark" : scheme;
    for (const button of document.querySelectorAll("[data-theme-choice] button")) {
      button.setAttribute("aria-pressed", String(button.value === value));
    }
  },
};
theme.apply();
theme.dark.addEventListener("change", () => theme.apply());
window.addEventListener("storage", () => theme.apply()); // chosen in another tab
