// The page pool of a copy as a grid: a cell is a page, or a few of them.

import { fill, h, setAttribute, setText } from "../dom.js";

const SIZES_PX = [11, 9, 7, 6, 5, 4]; // of a cell with its gap, the largest that fits
const MAX_HEIGHT_PX = 170;
const GAP_PX = 1;
const FREE = 0;
const SEQUENCE = 1;
const PREFIX = 2;
const COLOURS = 9;

/** The map's element; `update(copy)` draws a copy's `pool.map`. */
export function pageMap() {
  const canvas = h("canvas", { class: "page-map", role: "img" });
  const pointed = h("span", { class: "soft" });
  const legend = h("p", { class: "legend" },
    [["requests", "sequence"], ["cached prefixes", "prefix"], ["adapters", "adapter"], ["free", "free"]].map(([text, use]) =>
      h("span", null, h("i", { "data-use": use, "aria-hidden": "true" }), text)), pointed);
  const element = h("div", { class: "page-map-box" }, canvas, legend);
  let copy = null;
  let columns = 1;
  let size = SIZES_PX[0];
  let codes = [];
  let drawn = {};

  function draw() {
    const map = copy?.pool?.map;
    element.hidden = !map?.runs.length;
    if (element.hidden) return;
    setAttribute(canvas, "aria-label", summary(copy.pool));
    const look = `${element.clientWidth} ${devicePixelRatio} ${getComputedStyle(element).color}`;
    if (map === drawn.map && look === drawn.look) return;
    drawn = { map, look };
    codes = map.runs.flatMap(([code, times]) => Array(times).fill(code));
    const room = element.clientWidth || 640;
    const rowsOf = (it) => Math.ceil(codes.length / Math.floor(room / it));
    size = SIZES_PX.find((it) => rowsOf(it) * it <= MAX_HEIGHT_PX) ?? SIZES_PX.at(-1);
    columns = Math.floor(room / size);
    const scale = devicePixelRatio || 1;
    const [width, height] = [columns * size, rowsOf(size) * size];
    if (canvas.width !== width * scale || canvas.height !== height * scale) {
      canvas.width = width * scale;
      canvas.height = height * scale;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const colours = palette(element);
    codes.forEach((code, at) => {
      pen.fillStyle = colours(code);
      pen.fillRect((at % columns) * size, Math.floor(at / columns) * size, size - GAP_PX, size - GAP_PX);
    });
  }

  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = [Math.floor(event.offsetX / size), Math.floor(event.offsetY / size)];
    const at = y * columns + x;
    setText(pointed, x < columns && at < codes.length ? cellText(copy, at, codes[at]) : "");
  });
  canvas.addEventListener("pointerleave", () => fill(pointed));
  const resized = new ResizeObserver(draw);
  resized.observe(element);
  return {
    element,
    update(next) {
      copy = next;
      draw();
    },
  };
}

function palette(element) {
  const style = getComputedStyle(element);
  const of = (name) => style.getPropertyValue(name).trim();
  const fixed = { [FREE]: of("--track"), [SEQUENCE]: of("--accent"), [PREFIX]: of("--prefix") };
  const others = Array.from({ length: COLOURS }, (_, at) => of(`--c${at + 1}`));
  return (code) => fixed[code] ?? others[(code - 3) % COLOURS];
}

function cellText(copy, at, code) {
  const width = copy.pool.map.pages_per_cell;
  const pages = width === 1 ? `page ${at}` : `pages ${at * width} to ${Math.min(copy.pool.pages, (at + 1) * width) - 1}, mostly`;
  const use = { [FREE]: "free", [SEQUENCE]: "of a request", [PREFIX]: "cached for later requests" }[code];
  return `${pages}: ${use ?? `adapter ${copy.codes[code] ?? "that is not among the nearest"}`}`;
}

function summary(pool) {
  const free = pool.pages - pool.sequence_pages - pool.idle_prefix_pages - pool.adapter_pages;
  return `Page pool of ${pool.pages} pages: ${pool.sequence_pages} of requests, ${pool.idle_prefix_pages} cached, `
    + `${pool.adapter_pages} of ${pool.adapters} adapters, ${free} free`;
}
