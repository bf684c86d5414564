// Says what a part of a plot stands for while it is pointed at. The same is in each part's <title> and in the table.
(() => {
  "use strict";
  for (const figure of document.querySelectorAll("[data-plot]")) {
    const tip = document.createElement("div");
    tip.className = "plot-tip";
    tip.hidden = true;
    tip.setAttribute("aria-hidden", "true");
    figure.append(tip);
    for (const part of figure.querySelectorAll("[data-tip] > title")) part.remove(); // else it would be said twice
    figure.addEventListener("pointermove", (event) => {
      const part = event.target.closest("[data-tip]");
      tip.hidden = !part;
      if (!part) return;
      tip.textContent = part.dataset.tip;
      const box = figure.getBoundingClientRect();
      const left = Math.min(event.clientX - box.left + 14, box.width - tip.offsetWidth - 4);
      tip.style.left = `${Math.max(0, left)}px`;
      tip.style.top = `${event.clientY - box.top + 18}px`;
    });
    figure.addEventListener("pointerleave", () => { tip.hidden = true; });
  }
})();
