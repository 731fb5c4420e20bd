// Calls: the slowest of the last minutes, or those that failed; a call by its id.

import { clock, milliseconds } from "../charts.js";
import { fill, h, number } from "../dom.js";
import { virtualTable } from "../table.js";
import { choice } from "./pieces.js";

const ORDERS = [["slowest", "Slowest"], ["failed", "Failed"]];
const MINUTES = [["1", "1 min"], ["5", "5 min"], ["15", "15 min"]];

export const view = {
  name: "calls",
  title: "Calls",
  home: "calls",
  path: /^calls$/,
  topic() {
    const given = new URLSearchParams(location.search);
    const topic = { view: "calls" };
    for (const name of ["order", "endpoint", "minutes"]) if (given.get(name)) topic[name] = given.get(name);
    return topic;
  },
  mount(root, context) {
    const given = new URLSearchParams(location.search);
    const id = h("input", { type: "search", id: "call-id", placeholder: "request id", spellcheck: "false", autocomplete: "off" });
    const find = h("form", { class: "filter", role: "search" }, h("label", { for: "call-id" }, "Find a call "), id, h("button", { type: "submit" }, "Show"));
    find.addEventListener("submit", (event) => {
      event.preventDefault();
      if (id.value.trim()) context.navigate(`call/${encodeURIComponent(id.value.trim())}`);
    });
    const endpoint = h("input", { type: "search", id: "call-endpoint", placeholder: "all endpoints", value: given.get("endpoint") ?? "", list: "call-endpoints", autocomplete: "off" });
    const names = h("datalist", { id: "call-endpoints" });
    endpoint.addEventListener("change", () => {
      const query = new URLSearchParams(location.search);
      if (endpoint.value.trim()) query.set("endpoint", endpoint.value.trim());
      else query.delete("endpoint");
      context.navigate(`calls?${query}`);
    });
    const note = h("p", { class: "hint" });
    const table = virtualTable({
      caption: "Choose a call for its hops.",
      key: (row) => row.id,
      onSelect: (call) => context.navigate(`call/${encodeURIComponent(call)}`),
      columns: [
        { title: "Request", cell: (row) => h("a", { href: `/console/call/${encodeURIComponent(row.id)}`, title: row.id, class: "mono" }, row.id.slice(0, 8)) },
        { title: "Time", cell: (row) => clock(row.at) },
        { title: "Took", numeric: true, cell: (row) => milliseconds(row.ms) },
        { title: "Status", cell: (row) => h("span", { class: "status", "data-tone": row.status < 400 ? "good" : "bad" }, `${row.status}${row.code ? ` ${row.code}` : ""}`) },
        { title: "Endpoint", cell: (row) => row.endpoint },
        { title: "Target", cell: (row) => row.target ?? "–" },
        { title: "First byte", numeric: true, cell: (row) => milliseconds(row.first_byte_ms) },
        { title: "Queued", numeric: true, cell: (row) => (row.queue_ms ? milliseconds(row.queue_ms) : "–") },
        { title: "Tokens", numeric: true, cell: (row) => (row.tokens ? number(row.tokens) : "–") },
        { title: "Error", cell: (row) => h("span", { class: "why", title: row.error }, row.error ?? "") },
      ],
    });
    const scroll = h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": "Calls" }, table.element);
    root.append(
      h("div", { class: "title-line" }, h("h1", null, "Calls"), find),
      h("div", { class: "title-line" },
        h("div", { class: "row" }, choice("Which calls", "order", ORDERS, "slowest"), choice("Of the last", "minutes", MINUTES, "5")),
        h("label", { class: "filter", for: "call-endpoint" }, "Of ", endpoint), names),
      note, h("section", { class: "panel" }, scroll));
    return {
      update(doc) {
        const rows = Object.entries(doc.calls ?? {}).map(([call, it]) => ({ id: call, ...it }));
        rows.sort((a, b) => (doc.order === "failed" ? b.at - a.at : b.ms - a.ms));
        table.update(rows);
        scroll.hidden = !rows.length;
        const known = [...new Set(rows.map((it) => it.endpoint))].sort();
        if (names.childElementCount !== known.length) fill(names, known.map((it) => h("option", { value: it })));
        note.textContent = noteOf(doc, rows.length);
      },
      unmount: table.stop,
    };
  },
};

function noteOf(doc, count) {
  const of = doc.endpoint ? ` of ${doc.endpoint}` : "";
  const silent = doc.silent?.length ? ` ${doc.silent.join(", ")} did not answer: its calls are not here.` : "";
  const what = doc.order === "failed" ? "failed" : "was kept";
  if (!count) return `No call${of} ${what} in the last ${doc.minutes} minutes.${silent}`;
  const most = count === doc.limit ? ` The first ${doc.limit} are shown.` : "";
  return `Gateway workers keep the last calls, the failed ones and the slowest of the last 15 minutes.${most}${silent}`;
}
