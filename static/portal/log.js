// The log of a run while it grows: searched, filtered by level, followed, wrapped, saved.

import { at, events, get } from "./api.js";
import { button, h, section } from "./dom.js";
import { tell } from "./dialog.js";
import { copyText, saveButton } from "./save.js";
import { num, time } from "./text.js";

// Lines that the page keeps; the broker keeps more.
const MOST_LINES = 2000;
const LEVELS = ["trace", "debug", "info", "warning", "error", "critical"];

// Waits until the page can be seen.
async function seen(signal) {
  while (document.hidden && !signal.aborted) {
    await new Promise(resolve => {
      for (const [target, name] of [[document, "visibilitychange"], [signal, "abort"]]) target.addEventListener(name, resolve, { once: true });
    });
  }
}

// The log, followed from its first line. It is begun anew when the filter changes.
export function logOf(id, signal) {
  const lines = h("div", { class: "log", role: "log", tabindex: 0, "aria-label": "Log of the run", "aria-live": "off" });
  const state = h("span", { class: "soft" });
  const level = h("select", { id: "l-level", value: "trace" }, LEVELS.map(name => h("option", { value: name }, name)));
  const text = h("input", { id: "l-text", type: "search" });
  // A tick is set by the reader, or taken away by scrolling up.
  const tick = (name, label, change, checked = true) => h("label", { class: "choice" }, h("input", { type: "checkbox", name, checked, onchange: change }), label);
  const follow = tick("follow", "Follow", event => {
    event.stopPropagation();
    if (event.target.checked) lines.scrollTop = lines.scrollHeight;
  });
  const wrap = tick("wrap", "Wrap lines", event => {
    event.stopPropagation();
    lines.classList.toggle("nowrap", !event.target.checked);
  });
  const exact = tick("exact", "Milliseconds", event => {
    event.stopPropagation();
    lines.classList.toggle("exact", event.target.checked);
  }, false);
  const isFollowed = follow.firstChild;
  let reading = new AbortController();

  const lineOf = ({ at: instant, level: name, source, text: said }) =>
    h("div", { class: `line ${name}` }, time(instant), h("span", { class: "ms" }, `.${String(new Date(instant).getMilliseconds()).padStart(3, "0")}`), " ", h("span", { class: "level" }, name), " ", h("span", { class: "soft" }, source), " ", said);
  // What has come is shown once a frame: to ask for the layout at each line takes a tab's every moment.
  let [come, count, frame, word] = [[], 0, 0, ""];
  const say = text => {
    word = text;
    state.textContent = count > MOST_LINES ? `the last ${num(MOST_LINES)} of ${num(count)} lines; ${word}` : word;
  };
  const flush = () => {
    frame = 0;
    const fresh = document.createDocumentFragment();
    fresh.append(...come.slice(-MOST_LINES).map(lineOf));
    come = [];
    for (let over = lines.childElementCount + fresh.childElementCount - MOST_LINES; over > 0 && lines.firstChild; over -= 1) lines.firstChild.remove();
    lines.append(fresh);
    if (isFollowed.checked) lines.scrollTop = lines.scrollHeight;
    say(word);
  };
  const add = line => {
    count += 1;
    come.push(line);
    // A hidden page has no frames.
    if (come.length > 2 * MOST_LINES) come = come.slice(-MOST_LINES);
    frame ||= requestAnimationFrame(flush);
  };
  const clear = () => {
    come = [];
    count = 0;
    // A page that becomes shorter moves what is about to be clicked.
    lines.style.minHeight = `${lines.offsetHeight}px`;
    lines.replaceChildren();
  };

  const read = async () => {
    reading.abort();
    reading = new AbortController();
    const mine = AbortSignal.any([reading.signal, signal]);
    clear();
    const own = new Set();
    for (let last; !mine.aborted;) {
      await seen(mine);
      // A page that is not visible gives its connection back: a browser has six for all pages of a host.
      const stream = new AbortController();
      const hide = () => document.hidden && stream.abort();
      document.addEventListener("visibilitychange", hide);
      try {
        say("following");
        for await (const event of events(at(`/runs/${id}/logs/stream`, { level: level.value, text: text.value, after: last }), AbortSignal.any([mine, stream.signal]))) {
          // Lines of the ids 0 and -1 come from the run's row, and come anew with each call: they do not say where to go on.
          const isOwn = !(Number(event.id) > 0);
          const again = isOwn && own.has(JSON.stringify(event.data));
          if (event.name === "line" && isOwn) own.add(JSON.stringify(event.data));
          if (event.name === "line" && !again) add(event.data);
          if (!isOwn) last = event.id;
          if (event.name === "problem") throw new Error(event.data.detail);
          if (event.name === "end") {
            say(count ? "the run is over; the log is complete" : "the run is over; no line of its log matches");
            return;
          }
        }
      } catch (error) {
        if (mine.aborted) return;
        if (!stream.signal.aborted) say(`cut off (${error.message}); trying again`);
      } finally {
        document.removeEventListener("visibilitychange", hide);
      }
      if (!stream.signal.aborted) await new Promise(resolve => { setTimeout(resolve, 1000); });
    }
  };
  // Who reads further up is left there.
  lines.onscroll = () => { isFollowed.checked = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 20; };
  async function* all() {
    for (let after; ;) {
      const page = await get(at(`/runs/${id}/logs`, { level: level.value, text: text.value, after, limit: 1000 }), signal);
      yield page.items.map(line => `${line.at} ${line.level} ${line.source} ${line.text}`);
      if (!page.more) return;
      after = page.next;
    }
  }
  const form = h("form", { class: "filter", onsubmit: event => { event.preventDefault(); read(); }, onchange: read },
    h("div", {}, h("label", { for: "l-level" }, "Minimum level"), level), h("div", {}, h("label", { for: "l-text" }, "Containing"), text), follow, wrap, exact,
    button("Copy the lines", () => copyText([...lines.children].map(line => line.textContent).join("\n")).then(isDone => tell(isDone ? `${num(lines.childElementCount)} lines are copied.` : "The browser does not allow to copy.", isDone ? "" : "bad"))),
    saveButton("Save the log", `log-${id}.txt`, "text/plain", all));
  read();
  // On a line of its own: it changes while something in the form is clicked, and is not to move that.
  return section("Log", form, h("p", { class: "told" }, state), lines);
}
