// The targets and the copies of an endpoint, as tables of which only the part in sight is drawn.

import { milliseconds } from "../charts.js";
import { age, fill, h, number, setText } from "../dom.js";
import { virtualTable } from "../table.js";
import { instant, readyTone, reasonBlock, statusMark, targetPath } from "./pieces.js";

const FEW = 1;

export function targetsSection(context, endpoint) {
  const table = virtualTable({
    caption: "Choose one for its charts. Rates are of the last 10 seconds, percentiles of the last minute.",
    key: (row) => row.id,
    onSelect: (id) => context.navigate(targetPath(endpoint, id) + location.search),
    columns: [
      { title: "Target", cell: (row) => h("a", { href: `/console/${targetPath(endpoint, row.id)}${location.search}`, "aria-current": row.chosen ? "true" : null, title: row.id }, row.name) },
      { title: "Status", cell: (row) => statusMark(row.status ?? "–", row.status === "InService" ? readyTone(row.ready, row.desired) : undefined) },
      { title: "Copies", numeric: true, cell: (row) => (row.base ? `adapter of ${row.base}` : `${row.ready ?? 0} of ${row.desired ?? 0}`) },
      { title: "Requests/s", numeric: true, cell: (row) => figure(row.rate) },
      { title: "Errors/s", numeric: true, cell: (row) => figure(row.error_rate) },
      { title: "In flight", numeric: true, cell: (row) => figure(row.in_flight) },
      { title: "Queued", numeric: true, cell: (row) => figure(row.held) },
      { title: "p50", numeric: true, cell: (row) => milliseconds(row.p50) },
      { title: "p99", numeric: true, cell: (row) => milliseconds(row.p99) },
      { title: "Why", cell: (row) => h("span", { class: "why", title: row.reason }, row.reason ?? "") },
    ],
  });
  const element = h("section", { class: "panel" }, h("h2", null, "Targets"), scroller("Targets", table.element));
  return {
    element,
    update(doc) {
      const rows = Object.entries(doc.targets).map(([id, it]) => ({ id, name: id.slice(id.indexOf("/") + 1), chosen: id === doc.chosen, ...it }));
      rows.sort((a, b) => trouble(b) - trouble(a) || (b.rate ?? 0) - (a.rate ?? 0) || a.id.localeCompare(b.id));
      element.hidden = rows.length <= FEW && !rows.some((it) => it.reason);
      table.update(rows);
    },
    stop: table.stop,
  };
}

function figure(value) {
  return value ? number(value) : "–";
}

function trouble(row) {
  return row.reason || row.held || row.status === "Failed" ? 1 : 0;
}

function scroller(label, element) {
  return h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": label }, element);
}

export function copiesSection() {
  const heading = h("h2", null, "Copies");
  const detail = h("div", { class: "copy-detail", role: "status", "aria-live": "polite" });
  const none = h("p", { class: "hint" }, "There is no copy.");
  let chosen = null;
  let doc = null;
  const table = virtualTable({
    caption: "Choose one for its reason and its last log lines.",
    key: (row) => row.id,
    onSelect(id) {
      chosen = chosen === id ? null : id;
      drawDetail();
    },
    columns: [
      { title: "Copy", cell: (row) => h("code", null, row.id) },
      { title: "Of", cell: (row) => row.of + (row.container ? ` (${row.container})` : "") },
      { title: "State", cell: (row) => statusMark(row.phase) },
      { title: "Since", cell: (row) => (row.ready_at ? age(row.ready_at) : "–") },
      { title: "Instance", cell: (row) => h("code", null, row.instance) },
      { title: "Start", numeric: true, cell: (row) => (row.start_s === undefined || row.start_s === null ? "–" : `${row.start_s.toFixed(1)} s ${row.start_kind ?? ""}`) },
      { title: "Memory", numeric: true, cell: (row) => (row.memory_mib ? `${number(row.memory_mib)} MiB` : "–") },
      { title: "Restarts", numeric: true, cell: (row) => row.restarts || "–" },
      { title: "Adapters", numeric: true, cell: (row) => (row.adapters ? `${row.adapters}${row.adapters_failed ? `, ${row.adapters_failed} failed` : ""}` : "–") },
      { title: "Why", cell: (row) => h("span", { class: "why", title: whyOf(row) }, whyOf(row)) },
    ],
  });
  function drawDetail() {
    const it = doc?.copies?.[chosen];
    const text = JSON.stringify([chosen, it?.phase, it?.reason, it?.log, it?.end, it?.adapter_reason]);
    if (detail.dataset.shown === text) return;
    detail.dataset.shown = text;
    if (!it) return fill(detail);
    fill(detail, h("h3", null, `Copy ${chosen}`),
      h("p", null, `${it.of} on ${it.instance}: `, statusMark(it.phase)),
      it.reason && reasonBlock(it.reason, it.log),
      it.end && h("div", null, h("p", null, "Ended last at ", instant(it.end.at), ":"), reasonBlock(it.end.cause, it.end.log_tail)),
      it.adapter_reason && reasonBlock(`An adapter failed: ${it.adapter_reason}`),
      !it.reason && !it.end && !it.adapter_reason && h("p", { class: "soft" }, "Nothing is wrong with it, and it has not ended yet."),
      h("p", { class: "soft" }, "Its output: ", h("code", null, `hostelry logs ${chosen}`)));
  }
  return {
    element: h("section", { class: "panel" }, heading, none, scroller("Copies", table.element), detail),
    update(next) {
      doc = next;
      const rows = Object.entries(doc.copies ?? {}).map(([id, it]) => ({ id, ...it }));
      rows.sort((a, b) => notReady(b) - notReady(a) || a.of.localeCompare(b.of) || a.id.localeCompare(b.id));
      const ready = rows.filter((it) => it.phase === "ready").length;
      setText(heading, rows.length ? `Copies: ${ready} of ${rows.length} ready` : "Copies");
      none.hidden = rows.length > 0;
      table.element.hidden = !rows.length;
      table.update(rows);
      drawDetail();
    },
    stop: table.stop,
  };
}

function whyOf(row) {
  return row.reason ?? (row.end ? `ended ${age(row.end.at)} ago: ${row.end.cause}` : row.adapter_reason ?? "");
}

function notReady(row) {
  return row.phase === "ready" ? 0 : 1;
}
