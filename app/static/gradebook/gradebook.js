"use strict";

// All students in one table: the other pages are fetched one after the other, each as cheap as a page.
const showAll = (nav) => {
  const button = nav.querySelector("[data-all]");
  const body = document.querySelector("[data-rows]");
  const shown = nav.querySelector("[data-shown]");
  let next = Number(nav.dataset.page) + 1;

  const load = async () => {
    for (; next <= Number(nav.dataset.pages); next += 1) {
      const url = new URL(window.location.href);
      url.searchParams.set("page", next);
      url.searchParams.set("part", "rows");
      const answer = await fetch(url, { credentials: "same-origin" });
      if (!answer.ok || answer.redirected) throw new Error(`the rows answered ${answer.status}`);
      const rows = new DOMParser().parseFromString(`<table><tbody>${await answer.text()}</tbody></table>`, "text/html");
      body.append(...rows.querySelector("tbody").children);
    }
  };

  button.hidden = false;
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await load();
      shown.textContent = button.dataset.done;
      for (const other of nav.querySelectorAll("a, button")) other.remove();
    } catch {
      shown.textContent = button.dataset.failed;
      button.disabled = false;
    }
  });
};

document.querySelectorAll("[data-pages]").forEach((nav) => nav.querySelector("[data-all]") && showAll(nav));
