// Says what a part of a plot stands for while it is pointed at or focused; a plot is one stop of Tab, its parts are
// reached by arrow keys. The same is in each part's <title> and label, and in the table.
(() => {
  "use strict";
  const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  // as they are seen, from above and from the left: series of bars stand between each other
  const inOrder = (svg) => {
    const places = [...svg.querySelectorAll("[data-tip]")].map((one) => [one, one.querySelector(".plot-hit").getBoundingClientRect()]);
    return places.sort(([, a], [, b]) => a.top - b.top || a.left - b.left).map(([one]) => one);
  };
  for (const figure of document.querySelectorAll("[data-plot]")) {
    const tip = document.createElement("div");
    tip.className = "plot-tip";
    tip.hidden = true;
    tip.setAttribute("aria-hidden", "true");
    figure.append(tip);
    for (const part of figure.querySelectorAll("[data-tip] > title")) part.remove(); // else it would be said twice
    for (const keys of figure.querySelectorAll(".plot-keys")) keys.hidden = false;
    const show = (part, x, y) => {
      tip.hidden = !part;
      if (!part) return;
      tip.textContent = part.dataset.tip;
      const box = figure.getBoundingClientRect();
      tip.style.left = `${Math.max(0, Math.min(x - box.left + 14, box.width - tip.offsetWidth - 4))}px`;
      tip.style.top = `${y - box.top + 18}px`;
    };
    figure.addEventListener("pointermove", (event) => show(event.target.closest("[data-tip]"), event.clientX, event.clientY));
    figure.addEventListener("pointerleave", () => { tip.hidden = true; });
    figure.addEventListener("focusin", (event) => {
      const part = event.target.closest("[data-tip]");
      const place = part?.querySelector(".rect").getBoundingClientRect();
      if (place) show(part, place.left + place.width / 2, place.top + place.height / 2);
    });
    figure.addEventListener("focusout", () => { tip.hidden = true; });
    figure.addEventListener("keydown", (event) => {
      if (event.key === "Escape") tip.hidden = true;
      const part = event.target.closest("[data-tip]");
      const parts = part ? inOrder(part.closest("svg")) : [];
      const next = { Home: 0, End: parts.length - 1 }[event.key] ?? parts.indexOf(part) + (STEPS[event.key] ?? NaN);
      if (!parts[next]) return;
      event.preventDefault();
      part.setAttribute("tabindex", "-1");
      parts[next].setAttribute("tabindex", "0");
      parts[next].focus();
    });
  }
})();
