"use strict";

// The status of a submission without a reload. The server says when to ask again and answers 304 while nothing
// has changed. When the connection is lost, pauses grow; when the page is looked at again, it asks at once.
const watchStatus = (box) => {
  const FIRST_RETRY = 2000;
  const LONGEST_RETRY = 60000;
  const HIDDEN = 4;
  const PATIENCE = 20000;
  const headline = box.querySelector("[data-headline]");
  const list = box.querySelector("[data-stages]");
  const row = box.querySelector("template[data-stage-row]");
  const place = document.querySelector("[data-result-here]");
  const title = box.dataset.title;
  let etag = null;
  let pause = FIRST_RETRY;
  let failures = 0;
  let settled = box.dataset.settled !== undefined;
  let timer = 0;
  let asking = false;
  let again = false;

  const set = (element, text) => {
    if (element && element.textContent !== text) element.textContent = text;
  };

  const show = (name, shown) => {
    const note = box.querySelector(`[data-${name}]`);
    if (note && note.hidden === shown) note.hidden = !shown;
  };

  const showTab = (tab) => {
    const text = tab ? `${tab} · ${title}` : title;
    if (document.title !== text) document.title = text;
  };

  const showStages = (stages) => {
    const names = stages.map((stage) => stage.stage);
    for (const item of [...list.children]) {
      if (!names.includes(item.dataset.stage)) item.remove();
    }
    for (const stage of stages) {
      let item = [...list.children].find((one) => one.dataset.stage === stage.stage);
      if (!item) {
        item = row.content.firstElementChild.cloneNode(true);
        item.dataset.stage = stage.stage;
        list.append(item);
      }
      item.className = `stage stage-${stage.status}`;
      set(item.querySelector("[data-stage-title]"), stage.title);
      set(item.querySelector("[data-words]"), stage.words);
      set(item.querySelector("[data-stage-detail]"), stage.detail);
      // text, never markup; and outside the live region, or it would be read out again and again
      set(item.querySelector("[data-draft-text]"), stage.draft);
      item.querySelector("[data-draft]").hidden = stage.draft === "";
    }
  };

  const showResult = async (key) => {
    const answer = await fetch(box.dataset.result, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(`the result answered ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    place.replaceChildren(...page.body.childNodes);
    localiseTimes(place);
    box.dataset.shown = key;
    document.dispatchEvent(new CustomEvent("grader:result", { detail: place }));
  };

  const showLive = async (live) => {
    set(headline, live.headline);
    headline.className = `headline state-text-${live.status}`;
    set(box.querySelector("[data-detail]"), live.detail);
    showTab(live.tab);
    showStages(live.stages);
    for (const part of box.querySelectorAll("[data-unsettled]")) part.hidden = live.settled;
    if (live.result !== box.dataset.shown) await showResult(live.result);
    settled = live.settled;
    pause = 1000 * live.next_s;
  };

  // false: there is nothing to ask for any more
  const ask = async () => {
    const answer = await fetch(box.dataset.live, {
      credentials: "same-origin",
      cache: "no-store",
      headers: etag ? { "If-None-Match": etag } : {},
      signal: AbortSignal.timeout(PATIENCE),
    });
    if (answer.status === 401 || answer.status === 404) {
      show(answer.status === 401 ? "signed-out" : "gone", true);
      return false;
    }
    if (!answer.ok && answer.status !== 304) throw new Error(`the status answered ${answer.status}`);
    if (answer.ok) {
      await showLive(await answer.json());
      // kept only now: what could not be shown as a whole is asked for again
      etag = answer.headers.get("ETag");
    }
    return !settled;
  };

  const wait = (milliseconds) => {
    window.clearTimeout(timer);
    // not all at the same moment, whatever made them begin together
    timer = window.setTimeout(look, milliseconds * (0.85 + 0.3 * Math.random()));
  };

  const look = async () => {
    window.clearTimeout(timer);
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    again = false;
    let more = true;
    try {
      more = await ask();
      failures = 0;
      show("offline", false);
    } catch {
      failures += 1;
      show("offline", failures > 1 || !navigator.onLine);
    }
    asking = false;
    if (again && more) look();
    else if (failures) wait(Math.min(FIRST_RETRY * 2 ** (failures - 1), LONGEST_RETRY));
    else if (more) wait(document.hidden ? Math.min(HIDDEN * pause, LONGEST_RETRY) : pause);
  };

  // a page that slept, or was left and come back to, may show what is long over
  const resume = () => {
    if (!document.hidden && !(settled && etag)) look();
  };
  document.addEventListener("visibilitychange", resume);
  window.addEventListener("online", resume);
  window.addEventListener("offline", () => show("offline", !settled));
  window.addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    failures = 0;
    look();
  });

  const wish = box.querySelector("[data-mail-wish]");
  if (wish) {
    wish.querySelector("button").hidden = true;
    wish.addEventListener("change", () => wish.requestSubmit());
  }
  if (!settled) look();
};

document.querySelectorAll("[data-live]").forEach(watchStatus);
