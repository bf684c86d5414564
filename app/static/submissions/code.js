// Writing code in the browser: the editor in place of the text field, a check without leaving the page, and a draft
// that this browser keeps. Without scripts the form does the same with whole pages.
"use strict";
(() => {
  const FIRST_LOOK = 700;
  const LONGEST_PAUSE = 5000;

  // colours come from the style sheet: they follow the theme of the page
  ace.define("ace/theme/grader", ["require", "exports", "module"], (_require, exports) => {
    exports.isDark = false;
    exports.cssClass = "ace-grader";
    exports.cssText = "";
  });

  const openEditor = (field, language) => {
    const label = document.querySelector(`label[for=${field.id}]`);
    const title = label.textContent.trim();
    ace.config.set("useStrictCSP", true); // it brings no styles of its own: css/ace.css is linked
    ace.config.setMessages({
      "editor.scroller.aria-roledescription": say("code editor"),
      "editor.scroller.aria-label": `${title}, ${say("press Enter to edit, Escape to leave")}`,
      "text-input.aria-roledescription": say("code editor"),
      "text-input.aria-label": say("line $0"),
    });
    const box = document.createElement("div");
    box.className = "code-ace";
    field.after(box);
    const editor = ace.edit(box, {
      enableKeyboardAccessibility: true,
      fontSize: 14,
      mode: `ace/mode/${language}`,
      showPrintMargin: false,
      tabSize: language === "r" ? 2 : 4,
      showFoldWidgets: false,
      textInputAriaLabel: title,
      theme: "ace/theme/grader",
      useSoftTabs: true,
      useWorker: false,
      value: field.value,
    });
    editor.clearSelection();
    field.hidden = true;
    label.addEventListener("click", () => editor.focus());
    // numbers of lines only: nothing to reach by keys
    const gutter = box.querySelector(".ace_gutter");
    gutter.setAttribute("tabindex", "-1");
    gutter.setAttribute("aria-hidden", "true");
    return editor;
  };

  // a private window keeps nothing
  const kept = (name) => {
    try {
      return window.localStorage.getItem(name);
    } catch {
      return null;
    }
  };
  const keep = (name, text) => {
    try {
      if (text === null) window.localStorage.removeItem(name);
      else window.localStorage.setItem(name, text);
    } catch {
      // as above
    }
  };

  const watchCode = (form) => {
    const field = form.querySelector("#code");
    const problem = form.querySelector("[data-code-problem]");
    const button = form.querySelector("[data-check]");
    const said = form.querySelector("[data-said]");
    const place = document.querySelector("[data-outcome-here]");
    const name = form.dataset.draft;
    const draft = kept(name);
    const fresh = new URLSearchParams(window.location.search).get("from") === "starter";
    if (fresh) {
      keep(name, null);
      window.history.replaceState(null, "", window.location.pathname);
    } else if (draft !== null && draft !== field.value && form.dataset.refused === undefined) {
      field.value = draft;
      form.querySelector("[data-restored]").hidden = false;
    }
    const editor = openEditor(field, form.dataset.language);
    form.querySelector("[data-code-help]").hidden = false;
    editor.session.on("change", () => {
      field.value = editor.getValue();
      keep(name, field.value);
    });

    const tell = (text) => {
      problem.textContent = text;
      problem.hidden = text === "";
    };

    const show = (page) => {
      const found = page.querySelector("#outcome");
      // another page came instead: the one to sign in
      if (!found) throw new Error("no result of a check");
      place.replaceChildren(found);
      localiseTimes(place);
    };

    const read = async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html");

    // who went on typing is told, and stays where they are
    const finished = () => {
      said.textContent = say("The check is finished.");
      if ([document.body, button].includes(document.activeElement)) {
        place.querySelector("#outcome").focus({ preventScroll: true });
      }
    };

    const busy = (on) => {
      if (button) button.disabled = on;
    };

    const look = async (pause) => {
      if (!place.querySelector("[data-pending]")) {
        busy(false);
        return;
      }
      busy(true);
      try {
        const answer = await fetch(form.dataset.outcome, { credentials: "same-origin", cache: "no-store" });
        if (answer.ok) {
          const page = await read(answer);
          const pending = page.querySelector("[data-pending]");
          if (!pending || pending.textContent !== place.textContent) show(page);
          if (!pending) finished();
        }
      } catch {
        // the connection was lost: the next look may have it again
      }
      window.setTimeout(() => look(Math.min(1.3 * pause, LONGEST_PAUSE)), pause);
    };

    const check = async (again = false) => {
      busy(true);
      tell("");
      try {
        const answer = await fetch(button.formAction, {
          method: "POST",
          credentials: "same-origin",
          body: new FormData(form),
        });
        const page = await read(answer);
        const words = page.querySelector("[data-code-problem]:not([hidden]), main .alert-danger:not([hidden]), .error-page .lead");
        const over = answer.ok ? !answer.url.startsWith(form.action) : [400, 401].includes(answer.status) && !words;
        if (over && !again && (await signIn.ready())) return check(true);
        if (over) {
          tell(say("You have been signed out. This browser keeps your code. Sign in in another tab, then reload this page."));
          busy(false);
          return;
        }
        if (answer.ok) show(page);
        else tell(words ? words.textContent.trim() : say("The server could not check your code. Try again in a minute."));
      } catch {
        tell(say("The connection was lost. This browser keeps your code. Check again."));
      }
      look(FIRST_LOOK);
    };

    form.addEventListener("submit", (event) => {
      if (event.submitter !== button || !button) return;
      event.preventDefault();
      delete form.dataset.sent;
      check();
    });
    look(FIRST_LOOK);
  };

  document.querySelectorAll("[data-code-form]").forEach(watchCode);
})();
