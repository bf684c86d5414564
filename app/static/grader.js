"use strict";

const localiseTimes = (root) => {
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
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
      text = `These are ${files.length} files; at most ${maxFiles} fit in one hand-in. Put them into a zip or choose fewer.`;
    } else if (size > maxMb * 1024 * 1024) {
      text = `These files are larger than ${maxMb} MB together. Hand in fewer or smaller files.`;
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
    button.textContent = "Uploading …";
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

// The status of a submission without a reload. The server answers 304 while nothing has changed.
const watchStatus = (box) => {
  const headline = box.querySelector("[data-headline]");
  const list = box.querySelector("[data-stages]");
  const offline = box.querySelector("[data-offline]");
  const place = document.querySelector("[data-result-here]");
  let etag = null;

  const set = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };

  const stageItem = (stage) => {
    const item = document.createElement("li");
    item.dataset.stage = stage.stage;
    item.innerHTML =
      '<span class="dot" aria-hidden="true"></span><div class="flex-grow-1">' +
      '<div aria-live="polite" aria-atomic="true"><strong></strong>: <span data-words></span></div>' +
      '<div class="small text-body-secondary" data-stage-detail></div>' +
      '<div class="draft" data-draft hidden><div class="small text-body-secondary">An AI is writing this. Nobody has checked it, and it may still change.</div>' +
      "<div data-draft-text></div></div></div>";
    item.querySelector("strong").textContent = stage.title;
    return item;
  };

  const showStages = (stages) => {
    const names = stages.map((stage) => stage.stage);
    for (const item of [...list.children]) {
      if (!names.includes(item.dataset.stage)) item.remove();
    }
    for (const stage of stages) {
      let item = [...list.children].find((one) => one.dataset.stage === stage.stage);
      if (!item) {
        item = stageItem(stage);
        list.append(item);
      }
      item.className = `stage stage-${stage.status}`;
      set(item.querySelector("[data-words]"), stage.words);
      set(item.querySelector("[data-stage-detail]"), stage.detail);
      // text, never markup; and outside the live region, or it would be read out again and again
      set(item.querySelector("[data-draft-text]"), stage.draft);
      item.querySelector("[data-draft]").hidden = stage.draft === "";
    }
  };

  const showResult = async (key) => {
    const answer = await fetch(box.dataset.result, { credentials: "same-origin" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    place.replaceChildren(...page.body.childNodes);
    localiseTimes(place);
    box.dataset.shown = key;
  };

  const poll = async () => {
    let pause = 1500;
    try {
      const answer = await fetch(box.dataset.live, {
        credentials: "same-origin",
        headers: etag ? { "If-None-Match": etag } : {},
      });
      if (answer.status === 401 || answer.status === 404) return;
      offline.hidden = true;
      if (answer.ok) {
        etag = answer.headers.get("ETag");
        const live = await answer.json();
        set(headline, live.headline);
        headline.className = `headline state-text-${live.status}`;
        set(box.querySelector("[data-detail]"), live.detail);
        showStages(live.stages);
        if (live.result !== box.dataset.shown) await showResult(live.result);
        if (live.settled) return;
        if (["graded", "partial", "failed"].includes(live.status)) pause = 15000;
      }
    } catch {
      offline.hidden = false;
      pause = 4000;
    }
    window.setTimeout(poll, document.hidden ? 4 * pause : pause);
  };

  if (box.dataset.settled === undefined) poll();
};

localiseTimes(document);
document.querySelectorAll("form[data-upload]").forEach(watchUpload);
document.querySelectorAll("[data-live]").forEach(watchStatus);
