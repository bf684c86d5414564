// Students are found while one types: the page of the search is loaded, and only its list is exchanged.
"use strict";

const findStudent = (form) => {
  const field = form.querySelector("input[type=search]");
  let timer = 0;
  let asked = 0;

  const find = async () => {
    const number = ++asked;
    const chosen = document.querySelector("#students input:checked");
    const query = new URLSearchParams({ q: field.value });
    if (chosen) query.set("student", chosen.value);
    const answer = await fetch(`${window.location.pathname}?${query}`, { credentials: "same-origin" }).catch(() => null);
    if (!answer?.ok || answer.redirected || number !== asked) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("students");
    if (fresh && number === asked) document.getElementById("students").replaceChildren(...fresh.childNodes);
  };

  field.addEventListener("input", () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(find, 200);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    window.clearTimeout(timer);
    find();
  });
};
document.querySelectorAll("[data-find-student]").forEach(findStudent);
