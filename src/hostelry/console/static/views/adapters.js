// Adapters and cache: which adapter is where, how often it is used, and who has which page.

import { bytes, fill, h, keyed, number, setAttribute, setText } from "../dom.js";
import { virtualTable } from "../table.js";
import { pageMap } from "./page_map.js";

const TIERS = { pool: "pool", host: "host memory", disk: "disk", remote: "remote" };
const MODEL_TIERS = { host: "memory", disk: "disk", remote: "not here" };
const ORDERS = {
  requests: "requests", tokens: "tokens", bytes: "bytes", evictions: "evictions", name: "name",
};
const ROW_PX = 30;
const otherRows = new WeakMap(); // the rows of a list of names, which seldom changes

export const view = {
  name: "adapters",
  title: "Adapters and cache",
  home: "adapters",
  path: /^adapters(?:\/(@?[^/]+))?$/,
  topic([, name]) {
    if (!name) return { view: "adapters" };
    return { view: "adapters", ...(name.startsWith("@") ? { endpoint: name.slice(1) } : { component: name }) };
  },
  mount(root, context, [, name]) {
    return name ? mountKeeper(root, name) : mountList(root);
  },
};

function mountList(root) {
  const empty = h("p", { class: "hint", role: "status" }, "Asking the copies …");
  const body = h("tbody");
  const table = h("table", null, h("caption", null, "What keeps adapters or models, over all its copies"),
    h("thead", null, h("tr", null,
      ["Component", "Endpoint"].map((it) => h("th", { scope: "col" }, it)),
      ["Copies", "Registered", "In the pool", "In host memory", "Requests", "Evictions"].map((it) =>
        h("th", { scope: "col", class: "numeric" }, it)),
      h("th", { scope: "col" }, "Page pool"))), body);
  const scroll = h("div", { class: "scroll-x", hidden: true, tabindex: "0", role: "region", "aria-label": "Table" }, table);
  root.append(h("h1", null, "Adapters and cache"), empty, scroll);
  return {
    update(doc) {
      const rows = Object.entries(doc.keepers).sort(([a], [b]) => a.localeCompare(b));
      setText(empty, !doc.known ? "Asking the copies …" : rows.length
        ? leftOutText(doc.leftOut) : "No ready copy keeps adapters or models: LLMs and multi-model endpoints are shown here.");
      empty.hidden = empty.textContent === "";
      scroll.hidden = !rows.length;
      keyed(body, rows, ([path]) => path, makeKeeper, changeKeeper);
    },
  };
}

function makeKeeper([path, it]) {
  return h("tr", null,
    h("th", { scope: "row" }, h("a", { href: `/console/adapters/${path}` }, it.component ?? "(the endpoint's models)")),
    h("td", null, h("a", { href: `/console/endpoint/${it.endpoint}` }, it.endpoint)),
    Array.from({ length: 6 }, () => h("td", { class: "numeric" })), h("td", null, poolBar()));
}

function changeKeeper(row, [, it]) {
  const held = it.kind === "models" ? ["–", `${it.inPool} · ${bytes(it.hostBytes)}`] : [it.inPool, `${it.inHost} · ${bytes(it.hostBytes)}`];
  const texts = [it.silent ? `${it.copies} (${it.silent} silent)` : it.copies, number(it.registered), ...held, number(it.requests), number(it.evictions)];
  texts.forEach((text, at) => setText(row.children[2 + at], text));
  changePoolBar(row.lastChild.firstChild, it);
}

function poolBar() {
  return h("span", { class: "pool-bar", role: "img" }, ["sequence", "prefix", "adapter"].map((it) => h("i", { "data-use": it })));
}

function changePoolBar(bar, it) {
  bar.hidden = !it.pages;
  if (!it.pages) return;
  const parts = [it.sequencePages, it.prefixPages, it.adapterPages];
  parts.forEach((pages, at) => bar.children[at].style.setProperty("width", `${(100 * pages) / it.pages}%`));
  const [sequence, prefix, adapter] = parts.map((pages) => Math.round((100 * pages) / it.pages));
  setAttribute(bar, "aria-label", `Of ${it.pages} pages ${sequence} % requests, ${prefix} % cached, ${adapter} % adapters`);
  setAttribute(bar, "title", bar.getAttribute("aria-label"));
}

function mountKeeper(root, name) {
  const shown = name.replace(/^@/, "");
  const where = h("span", { class: "soft" });
  const status = h("p", { class: "hint", role: "status" }, "Asking the copies …");
  const totals = h("dl", { class: "totals" });
  const copies = h("div", { class: "keepers" });
  const filter = h("input", { type: "search", id: "filter", placeholder: "name or tier", spellcheck: "false" });
  const order = h("select", { id: "order" }, Object.entries(ORDERS).map(([value, text]) => h("option", { value }, text)));
  const listHost = h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": "Adapters" });
  const listTitle = h("h2", null);
  const evictions = h("ul", { class: "evictions" });
  let doc = null;
  let table = null;
  root.append(
    h("p", { class: "crumbs" }, h("a", { href: "/console/adapters" }, "Adapters and cache")),
    h("div", { class: "title-line" }, h("h1", null, shown, " ", where)),
    status, totals, copies,
    h("div", { class: "title-line list-head" }, listTitle,
      h("span", { class: "filter" }, h("label", { for: "filter" }, "Show"), filter, h("label", { for: "order" }, "by"), order)),
    listHost, evictions);

  function draw() {
    if (!doc) return;
    const isModels = doc.kind === "models";
    fill(where, doc.endpoint ? "of endpoint " : "", doc.endpoint && h("a", { href: `/console/endpoint/${doc.endpoint}` }, doc.endpoint));
    setText(status, statusText(doc, shown));
    status.hidden = status.textContent === "";
    drawTotals(totals, doc);
    keyed(copies, Object.entries(doc.copies), ([id]) => id, makeCopy, changeCopy);
    const rows = ordered(doc, filter.value.trim().toLowerCase(), order.value);
    setText(listTitle, isModels ? `${number(rows.length)} models` : `${number(rows.length)} adapters`);
    if (!table) {
      table = isModels ? modelTable() : adapterTable(() => doc);
      fill(listHost, table.element);
    }
    table.update(rows);
    const gone = doc.evictions.slice(-10).reverse();
    keyed(evictions, gone.map((it, at) => [`${at}`, it]), ([key]) => key, () => h("li"), (item, [, it]) =>
      setText(item, `${it.target} left the ${it.tier}: ${it.reason}`));
  }
  filter.addEventListener("input", draw);
  order.addEventListener("change", draw);
  return {
    update(next) {
      doc = next;
      draw();
    },
    unmount() {
      table?.stop();
    },
  };
}

function statusText(doc, name) {
  if (!doc.known) return "Asking the copies …";
  if (!doc.exists) return `There is no ${name}.`;
  if (!Object.keys(doc.copies).length) return "No copy of it is ready, so nothing is kept in memory.";
  return leftOutText(doc.leftOut);
}

function leftOutText(leftOut) {
  return leftOut ? `${leftOut} further copies are not shown.` : "";
}

function drawTotals(list, doc) {
  const it = doc.totals;
  const share = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");
  const found = Object.values(it.hits).reduce((sum, num) => sum + num, 0);
  const items = doc.kind === "models" ? modelTotals(doc) : [
    ["Adapters", number(Math.max(it.declared, Object.keys(doc.rows).length))],
    ["Requests with one", number(it.requests)],
    ["Their share of tokens", share(it.tokens, it.allTokens)],
    ["Found in the pool", share(it.hits.pool ?? 0, found)],
    ["Found in host memory", share(it.hits.host ?? 0, found)],
    ["Loads into the pool", number(it.poolLoads)],
    ["Evictions from it", number(it.poolEvictions)],
    ["Prefix pages found", share(it.prefixHits, it.prefixHits + it.prefixMisses)],
  ];
  keyed(list, items, ([name]) => name, ([name]) => h("div", null, h("dt", null, name), h("dd")), (box, [, text]) => setText(box.lastChild, text));
}

function modelTotals(doc) {
  const copies = Object.values(doc.copies);
  const rows = Object.values(doc.rows);
  const sum = (name) => copies.reduce((total, it) => total + (it[name] ?? 0), 0);
  return [
    ["Models known", number(rows.length)],
    ["In memory", number(rows.filter((it) => it.tier === "host").length)],
    ["Memory used", `${bytes(sum("memoryUsed"))} of ${bytes(sum("memory"))}`],
    ["Disk used", `${bytes(sum("diskUsed"))} of ${bytes(sum("disk"))}`],
    ["Requests", number(rows.reduce((total, it) => total + it.requests, 0))],
  ];
}

function makeCopy([id]) {
  const map = pageMap();
  const box = h("article", { class: "keeper", "aria-label": `copy ${id}` },
    h("h2", { class: "mono" }, id), h("p", { class: "hint" }), map.element, h("dl", { class: "tiers" }));
  box.map = map;
  return box;
}

function changeCopy(box, [, it]) {
  const [, text, , tiers] = box.children;
  setText(text, copyText(it));
  box.map.update(it);
  const rows = it.memory !== undefined ? modelTiers(it) : it.pool ? adapterTiers(it) : [];
  keyed(tiers, rows, ([name]) => name,
    ([name]) => h("div", null, h("dt", null, name), h("dd", null, h("span"), h("div", { class: "meter" }, h("i")))),
    (row, [, figure, part]) => {
      const [text, meter] = row.lastChild.children;
      setText(text, figure);
      meter.firstChild.style.setProperty("width", `${Math.min(100, 100 * part)}%`);
    });
}

function copyText(it) {
  if (it.fault) return `on ${it.instance}: ${it.fault}`;
  if (!it.pool) return `on ${it.instance}, ${it.loaded} models loaded${it.stuck?.length ? `, may still hold ${it.stuck.join(", ")}` : ""}`;
  const engine = it.kernels === "vllm" ? "vLLM, which does not say where adapters are" : `${it.kernels} kernels`;
  const loads = it.loads.waiting + it.loads.running;
  return `on ${it.instance} · ${engine} · ${it.running} running, ${it.waiting} waiting`
    + (loads ? ` · ${loads} adapters on their way` : "") + (it.loads.failed ? ` · ${it.loads.failed} loads failed` : "");
}

function adapterTiers(it) {
  const used = it.pool.sequence_pages + it.pool.idle_prefix_pages + it.pool.adapter_pages;
  const pages = Math.max(1, it.pool.pages);
  return [
    ["Page pool", `${it.pool.adapters} adapters · ${bytes(it.pool.bytes)} · ${number(it.pool.evictions)} evictions`, used / pages],
    ["Host memory", `${it.host.adapters} adapters · ${bytes(it.host.bytes)} of ${bytes(it.host.max_bytes)} · ${number(it.host.evictions)} evictions`, it.host.bytes / Math.max(1, it.host.max_bytes)],
    ...(it.disk.max_bytes ? [["Disk cache", `${bytes(it.disk.bytes)} of ${bytes(it.disk.max_bytes)} · ${number(it.disk.evictions)} evictions`, it.disk.bytes / it.disk.max_bytes]] : []),
  ];
}

function modelTiers(it) {
  return [
    ["Memory", `${bytes(it.memoryUsed)} of ${bytes(it.memory)}`, it.memoryUsed / Math.max(1, it.memory)],
    ["Disk", `${bytes(it.diskUsed)} of ${bytes(it.disk)}`, it.diskUsed / Math.max(1, it.disk)],
  ];
}

/** The rows that fit the words, in order: what copies name, then adapters that none of them names. */
function ordered(doc, words, by) {
  const value = by === "evictions" ? (it) => it.host_evictions ?? 0 : (it) => it[by] ?? 0;
  const byName = (a, b) => (a.name < b.name ? -1 : 1);
  const named = Object.entries(doc.rows).map(([name, it]) => ({ name, ...it }));
  named.sort(by === "name" ? byName : (a, b) => value(b) - value(a) || byName(a, b));
  if (!otherRows.has(doc.others)) otherRows.set(doc.others, doc.others.map((name) => ({ name })));
  const rows = named.concat(otherRows.get(doc.others));
  if (by === "name") rows.sort(byName);
  return words ? rows.filter((it) => it.name.toLowerCase().includes(words) || (it.tier ?? "").startsWith(words)) : rows;
}

function tierText(row, doc) {
  const notReady = doc?.notReady[row.name];
  if (notReady) return h("span", { class: "tier", "data-tier": "bad", title: notReady.reason ?? "" }, notReady.status);
  if (!row.tiers) return h("span", { class: "tier", "data-tier": "none", title: "Registered; not among the 500 nearest and busiest of a copy" }, "not near");
  const tiers = Object.values(row.tiers);
  const words = doc?.kind === "models" ? MODEL_TIERS : TIERS;
  return h("span", null, Object.keys(words).map((tier) => {
    const times = tiers.filter((it) => it === tier).length;
    return times ? h("span", { class: "tier", "data-tier": tier }, tiers.length > 1 ? `${words[tier]} ×${times}` : words[tier]) : null;
  }), row.pinned && h("span", { class: "tier", "data-tier": "pinned" }, "pinned"));
}

function counts(found) {
  const parts = Object.keys(TIERS).filter((it) => found?.[it]).map((it) => `${it} ${number(found[it])}`);
  return parts.join(" · ") || (found ? "–" : "");
}

function share(part, whole) {
  const percent = whole ? (100 * part) / whole : 0;
  return h("span", { class: "share-of" }, h("span", { class: "meter", "aria-hidden": "true" },
    h("i", { style: { width: `${percent}%` } })), `${percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`);
}

function adapterTable(document_) {
  const known = (row, value) => (row.tiers ? value : "");
  return virtualTable({
    caption: "Adapters: where they are now, and since their registration how often they were used, found, loaded and evicted",
    key: (row) => row.name,
    rowHeight: ROW_PX,
    columns: [
      { title: "Adapter", cell: (row) => row.name },
      { title: "Where", cell: (row) => tierText(row, document_()) },
      { title: "Now", numeric: true, cell: (row) => known(row, row.in_flight || "") },
      { title: "Requests", numeric: true, cell: (row) => known(row, number(row.requests)) },
      { title: "Share", cell: (row) => known(row, share(row.requests ?? 0, document_().totals.requests)) },
      { title: "Tokens", numeric: true, cell: (row) => known(row, number(row.tokens)) },
      { title: "Found in", cell: (row) => counts(row.hits) },
      { title: "Loaded from", cell: (row) => counts(row.loads) },
      { title: "Into the pool", numeric: true, cell: (row) => known(row, number(row.uploads)) },
      { title: "Left host", numeric: true, cell: (row) => known(row, number(row.host_evictions)) },
      { title: "Size", numeric: true, cell: (row) => known(row, bytes(row.bytes)) },
      { title: "Pages", numeric: true, cell: (row) => known(row, number(row.pages)) },
      { title: "Rank", numeric: true, cell: (row) => known(row, row.rank) },
    ],
  });
}

function modelTable() {
  const doc = { kind: "models", notReady: {} };
  return virtualTable({
    caption: "Models of the endpoint: where they are now, and how often they were asked",
    key: (row) => row.name,
    rowHeight: ROW_PX,
    columns: [
      { title: "Model", cell: (row) => row.name },
      { title: "Where", cell: (row) => tierText(row, doc) },
      { title: "Now", numeric: true, cell: (row) => row.in_flight || "" },
      { title: "Requests", numeric: true, cell: (row) => number(row.requests) },
      { title: "Memory", numeric: true, cell: (row) => bytes(row.bytes) },
      { title: "On disk", numeric: true, cell: (row) => bytes(row.diskBytes) },
      { title: "Load", numeric: true, cell: (row) => `${number(row.loadS)} s` },
      { title: "Download", numeric: true, cell: (row) => `${number(row.downloadS)} s` },
      { title: "Last use", cell: (row) => (row.usedAt ? new Date(row.usedAt * 1000).toLocaleTimeString() : "–") },
    ],
  });
}
