// Pieces that several views have: a status, an instant, a reason with the log below it, commands.

import { age, fill, h, setAttribute, setText } from "../dom.js";
import { clock } from "../charts.js";

const GOOD = new Set(["InService", "OK", "ready", "Successful", "complete", "running", "200"]);
const BAD = new Set(["Failed", "failed", "unhealthy", "ALARM", "OutOfService", "UpdateRollbackFailed", "rolled back", "crashed"]);

/** good, bad or warn, of a status of AWS's or the platform's. */
export function tone(status) {
  if (GOOD.has(status)) return "good";
  return BAD.has(status) ? "bad" : "warn";
}

/** A status as text with a dot: never by colour alone. `known` is a tone that the status does not say. */
export function statusMark(status, known) {
  const mark = h("span", { class: "status" });
  setStatus(mark, status, known);
  return mark;
}

/** Change a mark of `statusMark`. */
export function setStatus(mark, status, known) {
  setText(mark, status ?? "–");
  setAttribute(mark, "data-tone", known ?? tone(status));
}

/** How many are ready of how many there should be, and the tone that says. */
export function readyTone(ready, desired) {
  if (!desired || ready >= desired) return undefined;
  return ready ? "warn" : "bad";
}

/** An instant as a time element: the time of day, and its age in the title. */
export function instant(at) {
  if (!at) return h("span", null, "–");
  return h("time", { datetime: new Date(at * 1000).toISOString(), title: `${age(at)} ago` }, clock(at));
}

/** Why something is as it is, with the model server's last lines. */
export function reasonBlock(text, log = []) {
  return h("div", { class: "reason" }, text && h("p", null, text), logBlock(log));
}

/** Lines that a model server printed; nothing without any. */
export function logBlock(lines) {
  if (!lines?.length) return null;
  return h("pre", { class: "log", tabindex: "0", role: "group", "aria-label": "Last log lines" }, lines.join("\n"));
}

/** A line for a shell with a button that copies it. */
export function commandLine(text) {
  const button = h("button", { type: "button", class: "small", "aria-label": `Copy the command ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard?.writeText(text).catch(() => null);
    setText(button, "Copied");
    setTimeout(() => setText(button, "Copy"), 1500);
  });
  return h("span", { class: "command" }, h("code", null, text), button);
}

/** Figures as tiles: `update([{ title, value, tone, hint }])`. */
export function tiles(label) {
  const element = h("dl", { class: "totals", "aria-label": label });
  let shown = [];
  return {
    element,
    update(next) {
      const titles = next.map((it) => it.title).join();
      if (titles !== shown.map((it) => it.title).join()) {
        fill(element, next.map((it) => h("div", { title: it.hint }, h("dt", null, it.title), h("dd"))));
      }
      next.forEach((it, at) => {
        const tile = element.children[at];
        setText(tile.querySelector("dd"), it.value);
        setAttribute(tile, "data-bad", it.tone === "bad" ? "yes" : null);
      });
      shown = next;
    },
  };
}

/** Links that choose one of a few values of a parameter of the address. */
export function choice(label, name, options, fallback) {
  const given = new URLSearchParams(location.search);
  const current = given.get(name) ?? fallback;
  return h("nav", { class: "choice", "aria-label": label }, options.map(([value, title]) => {
    const query = new URLSearchParams(given);
    query.set(name, value);
    return h("a", { href: `${location.pathname}?${query}`, "aria-current": value === current ? "true" : null }, title);
  }));
}

/** A section with a heading; hidden while `update` is not given anything to show. */
export function section(title, ...children) {
  const heading = h("h2", null, title);
  const element = h("section", { class: "panel" }, heading, ...children);
  return { element, heading };
}

/** The path of a target of an endpoint. */
export function targetPath(endpoint, id) {
  const cut = id.indexOf("/");
  return `endpoint/${encodeURIComponent(endpoint)}/${id.slice(0, cut)}/${encodeURIComponent(id.slice(cut + 1))}`;
}
