// Fleet: instances as boxes, their copies packed in by accelerators, CPUs and memory.

import { fill, h, keyed, setAttribute, setText } from "../dom.js";
import { virtualBlocks } from "../table.js";
import { detailsPane } from "./fleet_details.js";
import { bars, colours, phaseText, shortId } from "./fleet_parts.js";
import { totalsStrip } from "./fleet_totals.js";

const CARD_PX = 330;
const GAP_PX = 12;
const HEAD_PX = 60;
const LANE_PX = 24;
const COPY_PX = 26;
const MAX_COPIES_SHOWN = 12;

export const view = {
  name: "fleet",
  title: "Fleet",
  home: "fleet",
  path: /^fleet$/,
  topic: () => ({ view: "fleet" }),
  mount(root, context) {
    const filter = h("input", { type: "search", id: "filter", placeholder: "component, endpoint, type, phase", spellcheck: "false" });
    const totals = totalsStrip();
    const unplaced = h("div", { class: "unplaced" });
    const host = h("div", { class: "boxes" });
    const empty = h("p", { class: "hint", hidden: true });
    const details = detailsPane(context, () => select(null));
    let doc = null;
    let selected = null;
    let colourOf = new Map();
    const blocks = virtualBlocks(host, makeBlock, changeBlock);
    root.append(
      h("div", { class: "fleet" },
        h("div", { class: "fleet-main" },
          h("div", { class: "title-line" }, h("h1", null, "Fleet"),
            h("label", { class: "filter", for: "filter" }, "Show ", filter)),
          totals.element, unplaced, empty, host),
        details.element));

    function draw() {
      if (!doc) return;
      colourOf = new Map(Object.entries(doc.endpoints).map(([name, it]) => [name, colours(Object.keys(it.components))]));
      totals.update(doc.known ? doc.totals : null);
      keyed(unplaced, Object.entries(doc.unplaced), ([id]) => id, makeUnplaced, changeUnplaced);
      const groups = grouped(doc, filter.value.trim().toLowerCase());
      const columns = Math.max(1, Math.floor((host.clientWidth + GAP_PX) / (CARD_PX + GAP_PX)));
      host.style.setProperty("--columns", columns);
      blocks.update(groups.flatMap((group) => groupBlocks(group, columns)));
      empty.hidden = groups.length > 0;
      setText(empty, emptyText(doc));
      details.update(doc, selected);
    }

    function select(next) {
      selected = next;
      draw();
      if (next) details.focus();
    }

    function makeBlock(block) {
      return block.instances ? h("div", { class: "boxes-row" })
        : h("h2", { class: "group" }, h("a", { href: `/console/endpoint/${encodeURIComponent(block.name)}` }, block.name), " ", h("span"));
    }
    function changeBlock(element, block) {
      if (!block.instances) return setText(element.lastChild, block.text);
      keyed(element, block.instances, ([id]) => id, ([id]) => makeBox(id), changeBox);
    }
    function makeBox(id) {
      const box = h("article", { class: "box", "aria-label": `instance ${id}` },
        h("button", { type: "button", class: "box-head", onclick: () => select({ instance: id }) },
          h("span", { class: "box-type" }), h("span", { class: "box-state" }), h("span", { class: "box-id" })),
        h("div", { class: "lanes" }), h("ul", { class: "copies", "aria-label": `copies on ${id}` }));
      return box;
    }
    function changeBox(box, [id, it]) {
      const [head, lanes, list] = box.children;
      setText(head.children[0], it.type);
      setText(head.children[1], it.problem ? "problem" : it.drain ? "draining" : it.state);
      setAttribute(box, "data-drain", it.drain ? "yes" : null);
      setText(head.children[2], `${shortId(id)} · ${it.zone}`);
      setAttribute(box, "data-state", it.problem ? "problem" : it.state);
      setAttribute(head, "aria-pressed", selected?.instance === id && !selected.copy);
      const colour = colourOf.get(it.endpoint);
      bars(lanes, it, { select: (copy) => select({ instance: id, copy }), selected: selected?.copy, colour });
      const copies = Object.entries(it.copies);
      const shown = copies.length > MAX_COPIES_SHOWN ? copies.slice(0, MAX_COPIES_SHOWN - 1) : copies;
      const items = shown.map(([copy, state]) => ({ copy, state }));
      if (shown.length < copies.length) items.push({ copy: "more", num: copies.length - shown.length });
      keyed(list, items, (item) => item.copy, (item) => makeCopy(id, item), (element, item) => changeCopy(element, item, colour));
    }
    function makeCopy(id, { copy }) {
      const chosen = copy === "more" ? { instance: id } : { instance: id, copy };
      return h("li", null, h("button", { type: "button", class: "copy", onclick: () => select(chosen) },
        h("i", { class: "swatch", "aria-hidden": "true" }), h("span", { class: "copy-name" }), h("span", { class: "copy-phase" })));
    }
    function changeCopy(item, { copy, state, num }, colour) {
      const button = item.firstChild;
      if (!state) return setText(button.children[1], `and ${num} more`);
      setAttribute(button, "data-phase", state.draining ? "draining" : state.phase);
      setAttribute(button, "data-copy", copy);
      setAttribute(button, "aria-pressed", selected?.copy === copy);
      setAttribute(button.children[0], "data-colour", colour(state.component ?? copy));
      setText(button.children[1], state.component ?? state.container ?? "model");
      setText(button.children[2], phaseText(state));
    }

    function makeUnplaced() {
      return h("section", { class: "note", "aria-label": "no place" }, h("h2"), h("p"), h("p", { class: "help" }));
    }
    function changeUnplaced(element, [, it]) {
      const [title, why, help] = element.children;
      const copies = it.count === 1 ? "1 copy has" : `${it.count} copies have`;
      setText(title, `${it.component}: ${copies} no place, of ${it.wanted}`);
      setText(why, it.why_not);
      setText(help, it.would_help ? `What would help: ${it.would_help}` : "");
    }

    filter.addEventListener("input", draw);
    host.addEventListener("keydown", (event) => moveFocus(event, host));
    const sized = new ResizeObserver(() => draw());
    sized.observe(host);
    return {
      update(next) {
        doc = next;
        draw();
      },
      unmount() {
        sized.disconnect();
        blocks.stop();
      },
    };
  },
};

/** The endpoints in order, each with those instances that the filter keeps. */
export function grouped(doc, filter) {
  const groups = new Map(Object.keys(doc.endpoints).sort().map((name) => [name, []]));
  for (const entry of Object.entries(doc.instances)) {
    const [id, it] = entry;
    if (filter && !matches(id, it, filter)) continue;
    groups.get(it.endpoint)?.push(entry);
  }
  return [...groups].filter(([name, found]) => found.length || (!filter || name.toLowerCase().includes(filter)))
    .map(([name, instances]) => ({ name, instances, endpoint: doc.endpoints[name] }));
}

function matches(id, it, filter) {
  const own = `${it.endpoint} ${id} ${it.type} ${it.state} ${it.problem ? "problem" : ""}`.toLowerCase();
  return own.includes(filter) || Object.entries(it.copies).some(([copy, state]) =>
    `${copy} ${state.component ?? ""} ${state.draining ? "draining" : state.phase}`.toLowerCase().includes(filter));
}

function groupBlocks({ name, instances, endpoint }, columns) {
  const text = `${endpoint.status}${endpoint.serving ? `, ${endpoint.serving}` : ""}${instances.length ? "" : " · no instance"}${endpoint.reason ? ` · ${endpoint.reason}` : ""}`;
  const found = [{ key: `group ${name}`, height: 46, name, text }];
  for (let at = 0; at < instances.length; at += columns) {
    const row = instances.slice(at, at + columns);
    const height = Math.max(...row.map(([, it]) => boxHeight(it)));
    found.push({ key: `row ${row[0][0]}`, height: height + GAP_PX, instances: row });
  }
  return found;
}

function boxHeight(it) {
  const lanes = it.accelerators ? 3 : 2;
  return HEAD_PX + lanes * LANE_PX + Math.min(Object.keys(it.copies).length, MAX_COPIES_SHOWN) * COPY_PX + 18;
}

function emptyText(doc) {
  if (!doc.known) return "Control has not answered yet.";
  return Object.keys(doc.endpoints).length ? "Nothing matches." : "No endpoint yet: create one with boto3, and its instances appear here.";
}

/** Arrow keys go from copy to copy and from box to box. */
function moveFocus(event, host) {
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const buttons = [...host.querySelectorAll(".boxes-row button:not([tabindex='-1'])")];
  const next = buttons[buttons.indexOf(document.activeElement) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}
