// Endpoints: all of them, those in trouble first.

import { milliseconds } from "../charts.js";
import { h, number } from "../dom.js";
import { virtualTable } from "../table.js";
import { statusMark } from "./pieces.js";

export const view = {
  name: "endpoints",
  title: "Endpoints",
  home: "endpoints",
  path: /^endpoints$/,
  topic: () => ({ view: "endpoints" }),
  mount(root, context) {
    const filter = h("input", { type: "search", id: "endpoint-filter", placeholder: "name or status", spellcheck: "false" });
    const none = h("p", { class: "hint", hidden: true });
    const table = virtualTable({
      caption: "Rates of the last 10 seconds; p99 of the last minute, of the slowest target.",
      key: (row) => row.name,
      onSelect: (name) => context.navigate(`endpoint/${encodeURIComponent(name)}`),
      columns: [
        { title: "Endpoint", cell: (row) => h("a", { href: `/console/endpoint/${encodeURIComponent(row.name)}` }, row.name) },
        { title: "Status", cell: (row) => statusMark(row.status, row.tone) },
        { title: "Components", numeric: true, cell: (row) => row.components || "–" },
        { title: "Copies ready", numeric: true, cell: (row) => (row.desired === undefined ? "–" : `${row.ready} of ${row.desired}`) },
        { title: "Requests/s", numeric: true, cell: (row) => (row.rate ? number(row.rate) : "–") },
        { title: "Errors/s", numeric: true, cell: (row) => (row.error_rate ? number(row.error_rate) : "–") },
        { title: "In flight", numeric: true, cell: (row) => (row.in_flight ? number(row.in_flight) : "–") },
        { title: "Queued", numeric: true, cell: (row) => row.held || "–" },
        { title: "p99", numeric: true, cell: (row) => milliseconds(row.p99) },
        { title: "What to know", cell: (row) => h("span", { class: "why", title: row.known }, row.known) },
      ],
    });
    const scroll = h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": "Endpoints" }, table.element);
    const panel = h("section", { class: "panel" }, scroll);
    let rows = null;
    let isKnown = false;
    root.append(
      h("div", { class: "title-line" }, h("h1", null, "Endpoints"), h("label", { class: "filter", for: "endpoint-filter" }, "Show ", filter)),
      none, panel);
    filter.addEventListener("input", draw);
    function draw() {
      if (!rows) return;
      const wanted = filter.value.trim().toLowerCase();
      const shown = rows.filter((it) => `${it.name} ${it.status}`.toLowerCase().includes(wanted));
      none.hidden = shown.length > 0;
      none.textContent = !isKnown ? "Control has not answered yet." : rows.length ? "No endpoint matches." : "There is no endpoint yet. `hostelry deploy` makes one.";
      panel.hidden = !shown.length;
      table.update(shown);
    }
    return {
      update(doc) {
        isKnown = doc.known;
        rows = Object.entries(doc.endpoints ?? {}).map(([name, it]) => ({ name, ...it, known: knownOf(it) }));
        rows.sort((a, b) => rank(a) - rank(b) || b.rate - a.rate || a.name.localeCompare(b.name));
        draw();
      },
      unmount: table.stop,
    };
  },
};

function rank(row) {
  if (row.status === "Failed" || row.tone === "bad") return 0;
  return row.failed || row.unplaced || row.held || row.tone ? 1 : 2;
}

function knownOf(it) {
  const components = (count) => (count === 1 ? "1 component" : `${count} components`);
  return [
    it.progress && `update: ${it.progress}`,
    it.trouble ?? (it.failed && `${components(it.failed)} failed`),
    it.unplaced && `${components(it.unplaced)} without a place`,
    it.reason,
  ].filter(Boolean).join("; ");
}
