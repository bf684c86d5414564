"use strict";

// How far off a moment is, in the reader's own calendar days and language; the server's words stay without this.
const sayOff = () => {
  const words = new Intl.RelativeTimeFormat(document.documentElement.lang || "en", { numeric: "auto" });
  const dayOf = (moment) => new Date(moment.getFullYear(), moment.getMonth(), moment.getDate());
  const now = new Date();
  for (const element of document.querySelectorAll("[data-moment]")) {
    const moment = new Date(element.dataset.moment);
    if (Number.isNaN(moment.getTime())) continue;
    const minutes = (moment - now) / 60000;
    const days = Math.round((dayOf(moment) - dayOf(now)) / 86400000);
    const text =
      Math.abs(minutes) < 0.75
        ? words.format(0, "second")
        : Math.abs(minutes) < 60
          ? words.format(Math.round(minutes), "minute")
          : Math.abs(minutes) < 12 * 60 || days === 0
            ? words.format(Math.trunc(minutes / 60), "hour")
            : words.format(days, "day");
    if (element.textContent !== text) element.textContent = text;
  }
  for (const element of document.querySelectorAll("[data-local]")) {
    const format = { dateStyle: "medium", timeStyle: "long" };
    element.textContent = `(${new Intl.DateTimeFormat(undefined, format).format(new Date(element.dataset.local))})`;
  }
};

const kilobytes = (size) =>
  size < 1048576 ? `${Math.max(1, Math.round(size / 1024))} KB` : `${(size / 1048576).toFixed(1)} MB`;

// The form: a list of files that can be made shorter, a bar while they travel, and one submission whatever happens.
const watchSubmitForm = (form) => {
  const input = form.querySelector("input[type=file]");
  const drop = form.querySelector("[data-drop]");
  const list = form.querySelector("[data-files]");
  const said = form.querySelector("[data-said]");
  const problem = form.querySelector("[data-problem]");
  const filesProblem = form.querySelector("[data-files-problem]");
  const sending = form.querySelector("[data-sending]");
  const bar = sending.querySelector("progress");
  const percent = sending.querySelector("[data-percent]");
  const buttons = [...form.querySelectorAll("[data-send]")];
  const endings = form.dataset.endings.split(",");
  let chosen = [];
  let request = null;

  const fill = (element, text) => {
    element.textContent = text;
    element.hidden = text === "";
  };

  // what is wrong with the files stands at their field, all else above the buttons
  const tell = (text) => fill(problem, text);
  const tellFiles = (text) => {
    fill(filesProblem, text);
    if (text === "") input.removeAttribute("aria-invalid");
    else input.setAttribute("aria-invalid", "true");
    tell("");
  };

  const why = (file) => {
    if (!endings.some((ending) => file.name.toLowerCase().endsWith(ending))) return say("cannot be graded: remove it");
    if (file.size === 0) return say("is empty: save your work and select it again");
    return "";
  };

  const check = () => {
    const size = chosen.reduce((sum, file) => sum + file.size, 0);
    if (chosen.length > Number(form.dataset.maxFiles))
      return say(
        "A submission can have up to %(most)s files, and you selected %(count)s. Select fewer, or put them into one ZIP file.",
        { count: chosen.length, most: form.dataset.maxFiles },
      );
    if (size > Number(form.dataset.maxMb) * 1048576)
      return say("These files are larger than %(mb)s MB together. Submit fewer or smaller files.", { mb: form.dataset.maxMb });
    const wrong = chosen.find((file) => why(file) !== "");
    return wrong ? `${wrong.name} ${why(wrong)}.` : "";
  };

  const show = (words) => {
    const transfer = new DataTransfer();
    for (const file of chosen) transfer.items.add(file);
    input.files = transfer.files;
    list.replaceChildren(
      ...chosen.map((file, place) => {
        const item = document.createElement("li");
        const name = document.createElement("span");
        name.textContent = `${file.name} (${kilobytes(file.size)})`;
        if (why(file) !== "") {
          item.className = "wrong";
          const reason = document.createElement("span");
          reason.className = "why";
          reason.textContent = why(file);
          name.append(reason);
        }
        const remove = document.createElement("button");
        remove.type = "button";
        remove.className = "btn btn-sm btn-outline-secondary";
        remove.textContent = say("Remove");
        remove.setAttribute("aria-label", say("Remove %(name)s", { name: file.name }));
        remove.addEventListener("click", () => {
          chosen = chosen.filter((other) => other !== file);
          show(say("%(name)s was removed.", { name: file.name }));
          const left = list.querySelectorAll("button");
          (left[Math.min(place, left.length - 1)] || input).focus();
        });
        item.append(name, remove);
        return item;
      }),
    );
    list.hidden = chosen.length === 0;
    said.textContent = words;
    tellFiles(check());
  };

  // what is chosen or dropped comes to what is there; the same name takes its place
  const add = (files) => {
    const names = new Set(files.map((file) => file.name));
    chosen = [...chosen.filter((file) => !names.has(file.name)), ...files];
    show(say("Files selected: %(count)s.", { count: chosen.length }));
  };

  const busy = (on) => {
    for (const button of buttons) button.disabled = on;
    sending.hidden = !on;
    bar.value = 0;
    percent.textContent = "0 %";
    request = on ? request : null;
  };

  const arrived = async () => {
    const key = form.querySelector("[name=key]").value;
    const answer = await fetch(`${form.dataset.arrived}?key=${encodeURIComponent(key)}`, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(String(answer.status));
    return (await answer.json()).url;
  };

  // nobody knows whether it arrived: the server is asked until it answers
  const lost = async (tries) => {
    try {
      const url = await arrived();
      if (url) {
        window.location.assign(url);
        return;
      }
      busy(false);
      tell(say("The connection was lost before the upload finished. Your files are still selected: try again."));
    } catch {
      tell(say("The connection was lost. This page checks what the server received and continues automatically."));
      if (tries > 0) window.setTimeout(() => lost(tries - 1), 3000);
      else {
        busy(false);
        tell(say("The server cannot be reached. Your files are still selected. Try again: nothing is submitted twice."));
      }
    }
  };

  const answered = () => {
    if (request.status < 400) {
      window.location.assign(request.responseURL);
      return;
    }
    const tooLarge = request.status === 413;
    const page = new DOMParser().parseFromString(request.responseText, "text/html");
    const wrong = page.querySelector("[data-files-problem]:not([hidden])");
    const words = page.querySelector("main .alert-danger:not([hidden]), .error-page .lead, #closed");
    busy(false);
    if (wrong || (tooLarge && words)) {
      tellFiles((wrong || words).textContent.trim());
      input.focus();
      return;
    }
    tell(words ? words.textContent.trim() : say("The server could not accept the upload. Try again in a minute."));
    problem.scrollIntoView({ block: "nearest" });
  };

  form.addEventListener("submit", (event) => {
    if (request) {
      event.preventDefault();
      return;
    }
    const wrong = check();
    tellFiles(wrong);
    if (wrong !== "") {
      event.preventDefault();
      return;
    }
    event.preventDefault();
    const data = new FormData(form);
    if (event.submitter && event.submitter.name) data.set(event.submitter.name, event.submitter.value);
    request = new XMLHttpRequest();
    request.open("POST", form.action);
    request.upload.addEventListener("progress", (progress) => {
      if (!progress.lengthComputable) return;
      const part = Math.floor((100 * progress.loaded) / progress.total);
      bar.value = part;
      percent.textContent = part < 100 ? `${part} %` : say("uploaded, being read");
    });
    request.addEventListener("load", answered);
    request.addEventListener("error", () => lost(40));
    request.addEventListener("abort", () => lost(3));
    busy(true);
    request.send(data);
  });
  sending.querySelector("[data-stop]").addEventListener("click", () => request && request.abort());

  input.addEventListener("change", () => {
    add([...input.files]);
  });
  for (const name of ["dragenter", "dragover"]) {
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    add([...event.dataTransfer.files]);
  });
  window.addEventListener("pageshow", () => busy(false));
  if (input.files.length) add([...input.files]);
};

const once = (form) => {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", () => delete form.dataset.sent);
};

sayOff();
window.setInterval(sayOff, 30000);
document.querySelectorAll("form[data-submit-form]").forEach(watchSubmitForm);
document.querySelectorAll("form[data-once]").forEach(once);
for (const zone of document.querySelectorAll("[data-own-zone]")) {
  zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone || zone.value;
}
for (const button of document.querySelectorAll("[data-print]")) {
  button.hidden = false;
  button.addEventListener("click", () => window.print());
}
