// The console's only script: keeps a page up to date, tells times in the browser's zone, and knows the keys.
// Every page works without it.
"use strict";

// --- times in the zone and language of the browser ------------------------------------------------------------------

function tellTimes(root) {
  const lang = document.documentElement.lang;
  const day = new Intl.DateTimeFormat(lang, { month: "short", day: "numeric" });
  const date = new Intl.DateTimeFormat(lang, { year: "numeric", month: "short", day: "numeric" });
  const whole = new Intl.DateTimeFormat(lang, { dateStyle: "full", timeStyle: "long" });
  const clock = new Intl.DateTimeFormat(lang, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const now = new Date();
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const on = at.getFullYear() === now.getFullYear() ? day : date;
    const words = at.toDateString() === now.toDateString() ? clock.format(at) : `${on.format(at)} ${clock.format(at)}`;
    if (time.textContent !== words) time.textContent = words;
    const title = `${whole.format(at)} · ${time.dateTime}`;
    if (time.title !== title) time.title = title;
  }
}

// Which zone the times of the page have.
function tellZone() {
  const zone = document.getElementById("zone");
  if (!zone) return;
  const parts = new Intl.DateTimeFormat(document.documentElement.lang, { timeZoneName: "longOffset" }).formatToParts();
  const offset = parts.find((part) => part.type === "timeZoneName");
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  zone.textContent = `${zone.dataset.zone} ${name}${offset ? `, ${offset.value}` : ""}`;
}

// --- the chosen sagas of a list --------------------------------------------------------------------------------------

function choose() {
  const boxes = [...document.querySelectorAll("[data-pick]")];
  const chosen = boxes.filter((box) => box.checked).length;
  for (const all of document.querySelectorAll("[data-pick-all]")) {
    all.hidden = false;
    all.checked = chosen > 0 && chosen === boxes.length;
    all.indeterminate = chosen > 0 && chosen < boxes.length;
  }
  const bar = document.getElementById("chosen");
  if (bar) bar.dataset.count = String(chosen);
}

addEventListener("change", (event) => {
  if (event.target.matches("[data-pick-all]")) {
    for (const box of document.querySelectorAll("[data-pick]")) box.checked = event.target.checked;
  }
  if (event.target.matches("[data-pick], [data-pick-all]")) choose();
});

// --- live: a page that is out of date is fetched again, and only what differs is replaced ---------------------------

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.id || node.getAttribute("data-row") || "" : "";
}

function sameKind(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

// Make `now` like `then`, keeping the elements that are there: focus, selection, open details and typed text stay.
function morph(now, then) {
  if (now.nodeType !== Node.ELEMENT_NODE) {
    if (now.nodeValue !== then.nodeValue) now.nodeValue = then.nodeValue;
    return;
  }
  const typed = now.matches("input:not([type=hidden]), textarea, select");
  for (const { name, value } of [...then.attributes]) {
    if (!(typed && name === "value") && now.getAttribute(name) !== value) now.setAttribute(name, value);
  }
  for (const { name } of [...now.attributes]) {
    const kept = name === "open" && (now.nodeName === "DETAILS" || now.nodeName === "DIALOG");
    if (!then.hasAttribute(name) && !kept && name !== "data-focus") now.removeAttribute(name);
  }
  if (typed) return;
  if (now.nodeName === "TIME" && now.dateTime === then.dateTime) return;
  const keyed = new Map();
  for (const child of now.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
  let at = now.firstChild;
  for (const wanted of [...then.childNodes]) {
    const key = keyOf(wanted);
    let found = key ? keyed.get(key) : at;
    if (found && sameKind(found, wanted)) {
      if (found !== at) now.insertBefore(found, at);
      else at = at.nextSibling;
      morph(found, wanted);
    } else {
      now.insertBefore(document.importNode(wanted, true), at);
    }
  }
  while (at) {
    const following = at.nextSibling;
    at.remove();
    at = following;
  }
}

let refreshing = false;
let again = false;
let refreshed = 0;

async function refresh() {
  if (refreshing) {
    again = true;
    return;
  }
  refreshing = true;
  const began = performance.now();
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (answer.redirected) {
      location.reload();
      return;
    }
    const type = answer.headers.get("content-type") || "";
    if (answer.ok && type.startsWith("text/html")) {
      const then = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const id of ["main", "top"]) {
        const part = then.getElementById(id);
        if (part) {
          tellTimes(part);
          morph(document.getElementById(id), part);
        }
      }
      choose();
      document.title = then.title;
      document.documentElement.dataset.refreshed = String(++refreshed);
      follow();
    }
  } catch {
    lost(true); // the stream says when the server is back
  } finally {
    refreshing = false;
    pause = Math.max(150, 3 * (performance.now() - began)); // a page that takes long is fetched less often
    if (again) {
      again = false;
      soon();
    }
  }
}

let planned = 0;
let pause = 150;

function soon() {
  if (!planned) {
    planned = setTimeout(() => {
      planned = 0;
      refresh();
    }, pause);
  }
}

function lost(is) {
  const state = document.getElementById("live-state");
  const words = is ? state.dataset.lost : "";
  if (state.textContent !== words) state.textContent = words;
  document.documentElement.dataset.live = is ? "lost" : "on";
}

let source = null;
let followed = "";

// The page says by which stream it is kept up to date; a saga that has ended has none.
function follow() {
  const address = document.getElementById("main").dataset.live || "";
  const path = address.split("?")[0];
  if (path === followed) return;
  if (source) source.close();
  followed = path;
  source = null;
  if (path) listen(address);
}

function listen(address) {
  const made = new EventSource(address);
  source = made;
  let opened = false;
  made.addEventListener("open", () => {
    lost(false);
    if (opened) soon(); // something may have happened meanwhile
    opened = true;
  });
  made.addEventListener("error", () => {
    lost(true);
    if (made.readyState === EventSource.CLOSED && source === made) {
      setTimeout(() => {
        if (source === made) {
          listen(address);
          soon();
        }
      }, 1500);
    }
  });
  made.addEventListener("stops", (event) => {
    const scopes = JSON.parse(event.data).stops.map((stop) => stop.scope);
    if (scopes.join(" ") !== (document.getElementById("main").dataset.held || "")) soon();
  });
  for (const kind of ["record", "overview"]) made.addEventListener(kind, soon);
  made.addEventListener("end", () => {
    made.close();
    lost(false);
    soon();
  });
}

addEventListener("pagehide", () => source && source.close());

// --- keys -----------------------------------------------------------------------------------------------------------

let prefix = "";

function rows() {
  return [...document.querySelectorAll("main [data-row]")].filter((row) => row.querySelector("a[href], summary"));
}

function move(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const row = all[Math.min(Math.max(at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by, 0), all.length - 1)];
  const target = row.querySelector("a[href], summary");
  target.focus();
  row.scrollIntoView({ block: "nearest" });
}

addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const pressed = prefix ? `${prefix} ${event.key}` : event.key;
  prefix = "";
  if (pressed === "g") {
    prefix = "g";
    setTimeout(() => (prefix = ""), 1500);
    return;
  }
  const link = pressed.startsWith("g ") && document.querySelector(`[data-key="${CSS.escape(pressed)}"]`);
  if (link) link.click();
  else if (pressed === "j") move(1);
  else if (pressed === "k") move(-1);
  else if (pressed === "/") {
    const search = document.querySelector("[data-search]");
    if (!search) return;
    search.focus();
    search.select();
  } else if (pressed === "?") document.getElementById("keys")?.showModal();
  else if (pressed === "Escape") {
    const closing = document.querySelector("[data-closes]");
    if (closing) closing.click();
    else return;
  } else return;
  event.preventDefault();
});

document.addEventListener("click", (event) => {
  const opens = event.target.closest("[data-opens]");
  if (opens) document.getElementById(opens.dataset.opens).showModal();
});

// A form that decides is sent once, however often its button is pressed.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "true";
});
addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach((form) => delete form.dataset.sent));

// A graph that is wider than its place begins at the chosen step, else in the middle, where its first step is.
for (const graph of document.querySelectorAll(".scroll > .graph")) {
  const place = graph.parentElement;
  const box = (graph.querySelector(".node.here") || graph).getBoundingClientRect();
  place.scrollLeft += box.left + box.width / 2 - place.getBoundingClientRect().left - place.clientWidth / 2;
}
tellTimes(document);
tellZone();
choose();
follow();
