// Long lists of which only the part in sight is in the page.

import { h, keyed } from "./dom.js";

const MARGIN_PX = 800;

/** Call `draw` soon after each scroll or resize, until the returned function is called. */
export function onSight(draw) {
  let asked = 0;
  const soon = () => {
    if (!asked) asked = requestAnimationFrame(() => { asked = 0; draw(); });
  };
  addEventListener("scroll", soon, { passive: true });
  addEventListener("resize", soon);
  return () => {
    cancelAnimationFrame(asked);
    removeEventListener("scroll", soon);
    removeEventListener("resize", soon);
  };
}

/** The first and past-the-last index of what is in sight; `tops` has one entry more than items. */
export function inSight(tops, from, to) {
  let first = 0;
  while (first < tops.length - 2 && tops[first + 1] < from) first += 1;
  let end = first;
  while (end < tops.length - 1 && tops[end] < to) end += 1;
  return [first, end];
}

/**
 * Blocks of known heights below each other. `update(blocks)` takes [{ key, height, ... }];
 * `make(block)` returns an element, `change(element, block)` brings it up to date.
 */
export function virtualBlocks(host, make, change) {
  let blocks = [];
  let tops = [0];
  host.classList.add("virtual");
  function draw() {
    const box = host.getBoundingClientRect();
    const [first, end] = inSight(tops, -box.top - MARGIN_PX, innerHeight - box.top + MARGIN_PX);
    const shown = blocks.slice(first, end).map((block, index) => ({ block, top: tops[first + index] }));
    keyed(host, shown, ({ block }) => block.key, ({ block }) => make(block), (element, { block, top }) => {
      element.style.transform = `translateY(${top}px)`;
      element.style.height = `${block.height}px`;
      change(element, block);
    });
  }
  const stop = onSight(draw);
  return {
    update(next) {
      blocks = next;
      tops = [0];
      for (const block of blocks) tops.push(tops.at(-1) + block.height);
      host.style.height = `${tops.at(-1)}px`;
      draw();
    },
    /** The top of a block in the page, or null. */
    topOf(key) {
      const index = blocks.findIndex((it) => it.key === key);
      return index < 0 ? null : host.getBoundingClientRect().top + scrollY + tops[index];
    },
    stop,
  };
}

/**
 * A table of which only the rows in sight are in the page.
 * columns: [{ title, cell(row) -> text or element, numeric }]; `key(row)` names a row.
 */
export function virtualTable({ caption, columns, key, rowHeight = 30, onSelect = null }) {
  const above = h("tr", { "aria-hidden": "true" }, h("td", { colspan: columns.length, class: "space" }));
  const below = above.cloneNode(true);
  const body = h("tbody");
  const head = h("tr", null, columns.map((it) => h("th", { scope: "col", class: it.numeric ? "numeric" : null }, it.title)));
  const element = h("table", { class: "virtual-table" }, h("caption", null, caption), h("thead", null, head),
    h("tbody", null, above), body, h("tbody", null, below));
  let rows = [];
  function draw() {
    const top = body.getBoundingClientRect().top - above.firstChild.offsetHeight;
    const first = Math.max(0, Math.floor((-top - MARGIN_PX) / rowHeight));
    const end = Math.min(rows.length, Math.ceil((innerHeight - top + MARGIN_PX) / rowHeight));
    above.firstChild.style.height = `${Math.min(first, rows.length) * rowHeight}px`;
    below.firstChild.style.height = `${Math.max(0, rows.length - end) * rowHeight}px`;
    const shown = rows.slice(first, Math.max(first, end)).map((row, index) => ({ row, index: first + index }));
    keyed(body, shown, ({ row }) => key(row), make, change);
  }
  function make({ row }) {
    const line = h("tr", { style: { height: `${rowHeight}px` } },
      columns.map((it) => h("td", { class: it.numeric ? "numeric" : null })));
    if (onSelect) {
      line.tabIndex = 0;
      const select = (event) => { if (!event.target.closest("a, button")) onSelect(key(row)); };
      line.addEventListener("click", select);
      line.addEventListener("keydown", (event) => { if (event.key === "Enter") select(event); });
    }
    return line;
  }
  function change(line, { row, index }) {
    line.setAttribute("aria-rowindex", index + 2);
    columns.forEach((column, at) => {
      const cell = line.children[at];
      const value = column.cell(row);
      if (value instanceof Node) {
        // What has not changed stays the same element: it may have the focus.
        if (!cell.firstChild?.isEqualNode(value)) cell.replaceChildren(value);
      } else if (cell.textContent !== String(value ?? "")) cell.textContent = String(value ?? "");
    });
  }
  const stop = onSight(draw);
  return {
    element,
    update(next) {
      rows = next;
      element.setAttribute("aria-rowcount", rows.length + 1);
      draw();
    },
    stop,
  };
}
