// The page's frame: which address shows what, the token, and whether the broker answers.

import { Problem, hasToken, setToken, token } from "./api.js";
import { h, link } from "./dom.js";
import { local } from "./text.js";
import { actor, actors } from "./actors.js";
import { alerts } from "./alerts.js";
import { audit } from "./audit.js";
import { brokers } from "./brokers.js";
import { begin, end, isLive, leave as leaveLive, onChange } from "./live.js";
import { groups } from "./groups.js";
import { job } from "./job.js";
import { listKeys } from "./keys.js";
import { changeJob, newJob } from "./jobform.js";
import { jobs } from "./jobs.js";
import { node } from "./node.js";
import { nodes } from "./nodes.js";
import { overview } from "./overview.js";
import { packages } from "./packages.js";
import { listen, openPalette } from "./palette.js";
import { run } from "./run.js";
import { runs } from "./runs.js";
import { sites } from "./sites.js";
import { tokens } from "./tokens.js";
import { worker } from "./worker.js";
import { workers } from "./workers.js";
import { zoneNote } from "./zone.js";

// Address, what shows it, and the part of the menu that it belongs to.
const PAGES = [
  [/^\/$/, overview, "/"],
  [/^\/jobs$/, jobs, "/jobs"],
  [/^\/jobs\/new$/, newJob, "/jobs"],
  [/^\/jobs\/([^/]+)$/, job, "/jobs"],
  [/^\/jobs\/([^/]+)\/edit$/, changeJob, "/jobs"],
  [/^\/runs$/, runs, "/runs"],
  [/^\/runs\/([^/]+)$/, run, "/runs"],
  [/^\/workers$/, workers, "/workers"],
  [/^\/workers\/([^/]+)$/, worker, "/workers"],
  [/^\/nodes$/, nodes, "/nodes"],
  [/^\/nodes\/([^/]+)$/, node, "/nodes"],
  [/^\/sites$/, sites, "/sites"],
  [/^\/groups$/, groups, "/groups"],
  [/^\/alerts$/, alerts, "/alerts"],
  [/^\/packages$/, packages, "/packages"],
  [/^\/brokers$/, brokers, "/brokers"],
  [/^\/tokens$/, tokens, "/tokens"],
  [/^\/audit$/, audit, "/audit"],
  [/^\/actors$/, actors, "/actors"],
  [/^\/actors\/([^/]+)\/([^/]+)$/, actor, "/actors"],
];

const main = document.getElementById("main");
const note = document.getElementById("note");
const ask = document.getElementById("ask");
let leave = new AbortController();
let current;
let shown;
// How often a page was read, which tests wait for.
let looks = 0;

// The time of each look would be too much to hear; what went wrong is not.
function say(text, kind = "") {
  note.setAttribute("aria-live", kind ? "polite" : "off");
  if (note.textContent !== text) note.textContent = text;
  note.className = kind;
}

// Asks for a token above the page; what is typed there stays. Calls that come back later do not ask again.
function wantToken(wasSent) {
  if (!ask.hidden && !wasSent) return;
  document.getElementById("ask-note").textContent = wasSent ? "The broker did not accept this token." : "This broker needs a token.";
  setToken("");
  document.getElementById("forget").hidden = true;
  if (ask.hidden) {
    ask.hidden = false;
    document.getElementById("token").focus();
  }
}

// Shows what went wrong where a page could not be shown, or go on.
function failed(error, page) {
  if (error.name === "AbortError") return undefined;
  if (error.status === 401) return say("a token is needed", "bad");
  say(error.message, "bad");
  if (!(error instanceof Problem)) console.error(error);
  // What is shown stays, as old as the note says; but what is gone is not to be acted on any more.
  if (page.isMounted && error.status !== 404) return undefined;
  const { root } = page;
  if (error.status === 404) {
    page.title("Not found");
    root.replaceChildren(h("h1", {}, "Not found"), h("p", {}, error.message), h("p", {}, link("/jobs", "All jobs")));
  } else root.replaceChildren(h("p", { class: "error" }, error.message));
  return undefined;
}

// What a page is given: where to put itself, what the address says, and how to look again and again.
function pageOf(root, parts, query, signal) {
  const page = { root, parts, query: Object.fromEntries(query), signal };
  // Shows the page, the first time it is called. Until then the page has room for an error. The body is a function, because
  // to make it again would take the elements that live in it out of the page.
  page.mount = bodyOf => {
    if (page.isMounted) return;
    page.isMounted = true;
    root.replaceChildren(...bodyOf().filter(part => part));
  };
  page.title = text => { document.title = `${text} · Webloom`; };
  signal.addEventListener("abort", () => page.wake?.());
  // Does something now, and again so many milliseconds after it was done (or as many as it says), until the page is left.
  // Of `once`, only until it was done.
  page.live = async (usual, work, once = false) => {
    for (let pass; ;) {
      let ms = usual;
      // What is asked for meanwhile comes with another look at once.
      let isAsked = false;
      page.wake = () => { isAsked = true; };
      try {
        if (!once) pass = begin(pass);
        ms = await work() ?? usual;
        if (once) return say("");
        if (!signal.aborted) {
          say(`as of ${local(new Date()).slice(11)}${isLive(pass) ? ", live" : ""}`);
          end(pass, token());
          looks += 1;
          note.dataset.looks = looks;
        }
      } catch (error) {
        end(pass);
        if (signal.aborted) return undefined;
        failed(error, page);
        if (error.status === 404) return leave.abort();
        // Nothing to ask before there is another token: that wakes it.
        if (error.status === 401) ms = Infinity;
      }
      if (!isAsked) await new Promise(resolve => {
        const timer = ms === Infinity ? undefined : setTimeout(resolve, document.hidden ? 5 * ms : ms);
        page.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      if (signal.aborted) return undefined;
    }
  };
  page.once = work => page.live(2000, work, true);
  return page;
}

async function show() {
  leave.abort();
  leaveLive();
  current = undefined;
  shown = location.href;
  leave = new AbortController();
  const [path, query] = (location.hash.slice(1) || "/").split(/\?(.*)/s);
  const found = PAGES.find(([pattern]) => pattern.test(path));
  for (const item of document.querySelectorAll("#menu a")) {
    if (found && item.getAttribute("href") === `#${found[2]}`) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  ask.hidden = true;
  say("");
  document.getElementById("forget").hidden = !hasToken();
  const root = h("div");
  main.replaceChildren(root);
  const nothing = () => {
    document.title = "Not found · Webloom";
    root.replaceChildren(h("h1", {}, "Not found"), h("p", {}, "Nothing is at this address. ", link("/", "To the overview")));
  };
  if (!found) {
    nothing();
    return;
  }
  let parts;
  try {
    parts = path.match(found[0]).slice(1).map(decodeURIComponent);
  } catch {
    nothing();
    return;
  }
  const page = current = pageOf(root, parts, new URLSearchParams(query), leave.signal);
  try {
    await found[1](page);
  } catch (error) {
    failed(error, page);
  }
}

ask.onsubmit = event => {
  event.preventDefault();
  const input = document.getElementById("token");
  try {
    setToken(input.value.trim());
  } catch (error) {
    document.getElementById("ask-note").textContent = error.message;
    return;
  }
  input.value = "";
  ask.hidden = true;
  document.getElementById("forget").hidden = false;
  main.focus();
  if (current?.wake) current.wake();
  else if (!current?.isMounted) show();
};
onChange(() => current?.wake?.());
listen();
listKeys();
document.getElementById("find").onclick = openPalette;
window.addEventListener("token", event => wantToken(event.detail));
document.getElementById("forget").onclick = () => {
  setToken("");
  show();
};
// The address is where the page is; the link to the content must not change it.
document.getElementById("skip").onclick = event => {
  event.preventDefault();
  main.focus();
};
document.getElementById("zones").replaceChildren(...zoneNote());
window.addEventListener("beforeunload", event => current?.isDirty && event.preventDefault());
window.addEventListener("hashchange", () => {
  if (location.href === shown) return;
  if (current?.isDirty && !window.confirm("What you typed is not saved. Leave it?")) {
    history.replaceState(null, "", shown);
    return;
  }
  show();
  // Who reads by keyboard or ear begins at the top of what is new.
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
});
show();
