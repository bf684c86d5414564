"use strict";

// As the reader's browser writes dates, if that is in the language of the page.
const pageLocale = () => {
  const language = document.documentElement.lang || "en";
  return navigator.languages.find((one) => one.split("-")[0] === language) || language;
};

const localiseTimes = (root) => {
  const format = new Intl.DateTimeFormat(pageLocale(), { dateStyle: "medium", timeStyle: "short" });
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (!Number.isNaN(moment.getTime())) {
      time.title = time.textContent;
      time.textContent = format.format(moment);
    }
  }
};

const watchUpload = (form) => {
  const input = form.querySelector("input[type=file]");
  const drop = form.querySelector("[data-drop]");
  const chosen = form.querySelector("[data-chosen]");
  const problem = form.querySelector("[data-problem]");
  const maxMb = Number(form.dataset.maxMb);
  const maxFiles = Number(form.dataset.maxFiles);

  const check = () => {
    const files = [...input.files];
    const size = files.reduce((sum, file) => sum + file.size, 0);
    chosen.replaceChildren(
      ...files.map((file) => {
        const item = document.createElement("li");
        item.textContent = `${file.name} (${Math.max(1, Math.round(file.size / 1024))} KB)`;
        return item;
      }),
    );
    let text = "";
    if (files.length > maxFiles) {
      text = say(
        "A submission can have up to %(most)s files, and you selected %(count)s. Select fewer, or put them into one ZIP file.",
        { count: files.length, most: maxFiles },
      );
    } else if (size > maxMb * 1024 * 1024) {
      text = say("These files are larger than %(mb)s MB together. Submit fewer or smaller files.", { mb: maxMb });
    }
    problem.textContent = text;
    problem.hidden = text === "";
    return text === "";
  };

  input.addEventListener("change", check);
  form.addEventListener("submit", (event) => {
    if (!check()) {
      event.preventDefault();
      return;
    }
    const button = form.querySelector("button");
    button.disabled = true;
    button.textContent = say("Uploading …");
  });
  window.addEventListener("pageshow", () => {
    form.querySelector("button").disabled = false;
  });
  for (const name of ["dragenter", "dragover"]) {
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  for (const name of ["dragleave", "drop"]) {
    drop.addEventListener(name, () => drop.classList.remove("over"));
  }
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    input.files = event.dataTransfer.files;
    check();
  });
};

localiseTimes(document);
document.querySelectorAll("form[data-upload]").forEach(watchUpload);
