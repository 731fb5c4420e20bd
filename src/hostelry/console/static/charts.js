// Charts as SVG of our own: lines over time, capacity with scaling acts, waterfalls.
//
// A chart is drawn for the width that it has. It is an image to a screen reader, whose text sums it
// up; its legend is text in the page. Where the pointer is, the values of that instant are shown.

import { fill, h, setText, svg } from "./dom.js";

const LEFT = 48;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;
const MIN_WIDTH = 240;
const SHORTEST_S = 180;

/** Milliseconds in words: 0.8 ms, 120 ms, 2.4 s. */
export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (value >= 100000) return `${Math.round(value / 1000)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(value >= 10000 ? 1 : 2)} s`;
  return `${value >= 100 ? Math.round(value) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

/** The local time of day. */
export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

function shortClock(at) {
  return clock(at).slice(0, 5);
}

/**
 * The begin of a chart that ends at `to` and shows up to `length` seconds: where the data begin, so
 * that a platform that has just been started does not show a line at the edge of nothing.
 */
export function beginOf(to, length, ...series) {
  const first = Math.min(to, ...series.map((points) => points[0]?.[0] ?? to));
  return Math.max(to - length, Math.min(first, to - SHORTEST_S));
}

/** A round number at or above `value`, for the top of an axis. */
export function niceTop(value) {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((it) => it * unit).find((it) => it >= value * 0.999);
}

/** Instants for the axis of time: whole minutes, at most `most` of them. */
export function timeTicks(from, to, most) {
  const steps = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400];
  const step = steps.find((it) => (to - from) / it <= most) ?? 28800;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
  return ticks;
}

/** The path through `points` ([at, value]); a gap longer than `gap` seconds, or no value, breaks it. */
export function linePath(points, x, y, gap) {
  let path = "";
  let last = null;
  for (const [at, value] of points) {
    if (value === null || value === undefined) { last = null; continue; }
    path += `${last !== null && at - last <= gap ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    last = at;
  }
  return path;
}

/** The path of a value that holds until the next one, to `end`. */
export function stepPath(points, x, y, end) {
  let path = "";
  for (const [at, value] of points) path += path ? `H${x(at).toFixed(1)}V${y(value).toFixed(1)}` : `M${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
  return path && `${path}H${x(end).toFixed(1)}`;
}

/** Redraw when the width changes; returns what stops that. */
function onWidth(element, draw) {
  const observer = new ResizeObserver(() => draw());
  observer.observe(element);
  return () => observer.disconnect();
}

function frame(width, height, from, to, top, format) {
  const x = (at) => LEFT + (at - from) / Math.max(1e-9, to - from) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
  const grid = [0, 0.5, 1].map((share) => [
    svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(top * share), y2: y(top * share) }),
    svg("text", { class: "tick", x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, format(top * share)),
  ]);
  const ticks = timeTicks(from, to, Math.max(2, Math.floor((width - LEFT) / 90))).map((at) =>
    svg("text", { class: "tick", x: x(at), y: height - 5, "text-anchor": x(at) > width - 20 ? "end" : "middle" }, shortClock(at)));
  return { x, y, marks: [grid, ticks] };
}

/**
 * A chart of lines. `update({ from, to, series: [{ name, class, points: [[at, value]] }], gap })`:
 * values of one unit, which `format` writes.
 */
export function lineChart({ title, format, height = 130 }) {
  const image = svg("svg", { role: "img", class: "chart", height });
  const legend = h("p", { class: "legend", "aria-hidden": "true" });
  const element = h("figure", { class: "chart-box" }, h("figcaption", null, title), image, legend);
  let data = { from: 0, to: 1, series: [], gap: 60 };
  let pointerAt = null;
  let place = null;

  function draw() {
    const width = Math.max(MIN_WIDTH, element.clientWidth);
    const { from, to, series, gap } = data;
    const values = series.flatMap((it) => it.points.map((point) => point[1])).filter((it) => it !== null && it !== undefined);
    const top = niceTop(Math.max(0, ...values));
    const { x, y, marks } = frame(width, height, from, to, top, format);
    place = (clientX) => from + (clientX - image.getBoundingClientRect().left - LEFT) / (width - LEFT - RIGHT) * (to - from);
    const lines = series.map((it) => [
      it.area && svg("path", { class: `area ${it.class}`, d: areaPath(it.points, x, y, gap) }),
      svg("path", { class: `line ${it.class}`, d: linePath(it.points, x, y, gap) }),
      it.points.length < 40 && it.points.filter((point) => point[1] !== null && point[1] !== undefined).map((point) =>
        svg("circle", { class: `dot ${it.class}`, cx: x(point[0]), cy: y(point[1]), r: 1.8 })),
    ]);
    const shownAt = pointerAt === null ? null : nearest(series, pointerAt);
    const ruler = shownAt !== null && svg("line", { class: "ruler", x1: x(shownAt), x2: x(shownAt), y1: TOP, y2: height - BOTTOM });
    image.setAttribute("viewBox", `0 0 ${width} ${height}`);
    image.setAttribute("width", width);
    const empty = !values.length && svg("text", { class: "tick", x: width / 2, y: height / 2, "text-anchor": "middle" }, "no data in this time");
    fill(image, svg("title", null, summary(series)), marks, lines, ruler, empty);
    fill(legend, shownAt !== null && h("span", { class: "instant" }, clock(shownAt)),
      series.map((it) => h("span", { class: `key ${it.class}` }, `${it.name} `, h("b", null, format(valueAt(it.points, shownAt))))));
  }
  function summary(series) {
    const parts = series.map((it) => `${it.name} ${format(valueAt(it.points, null))}`);
    return `${title} from ${clock(data.from)} to ${clock(data.to)}; at the end ${parts.join(", ")}`;
  }
  image.addEventListener("pointermove", (event) => { pointerAt = place?.(event.clientX) ?? null; draw(); });
  image.addEventListener("pointerleave", () => { pointerAt = null; draw(); });
  const stop = onWidth(element, draw);
  return { element, update(next) { data = { ...data, ...next }; draw(); }, stop };
}

function areaPath(points, x, y, gap) {
  let path = "";
  let run = [];
  const close = () => {
    if (run.length > 1) path += `M${x(run[0][0]).toFixed(1)} ${y(0).toFixed(1)}${run.map((it) => `L${x(it[0]).toFixed(1)} ${y(it[1]).toFixed(1)}`).join("")}L${x(run.at(-1)[0]).toFixed(1)} ${y(0).toFixed(1)}Z`;
    run = [];
  };
  for (const point of points) {
    if (point[1] === null || point[1] === undefined || (run.length && point[0] - run.at(-1)[0] > gap)) close();
    if (point[1] !== null && point[1] !== undefined) run.push(point);
  }
  close();
  return path;
}

function nearest(series, at) {
  let found = null;
  for (const one of series) for (const [instant] of one.points) {
    if (found === null || Math.abs(instant - at) < Math.abs(found - at)) found = instant;
  }
  return found;
}

/** The value at an instant; null: the last one. */
function valueAt(points, at) {
  if (at === null) return points.at(-1)?.[1] ?? null;
  return points.find((it) => it[0] === at)?.[1] ?? null;
}

/**
 * Capacity over time with the acts that changed it. `update({ from, to, desired, serving, acts,
 * chosen })`: acts are [{ id, from, to, at, t0, t1, t2, status }]; `onChoose(id)` for one that is
 * clicked. t0: the load rose; t1: it was decided; t2: the new capacity first answered.
 */
export function capacityChart({ title, unit, onChoose, height = 120 }) {
  const image = svg("svg", { role: "img", class: "chart", height });
  const legend = h("p", { class: "legend", "aria-hidden": "true" },
    h("span", { class: "key line-desired" }, `${unit} wanted`), h("span", { class: "key line-serving" }, `${unit} serving`),
    h("span", { class: "key act-detect" }, "t0 to t1, until decided"), h("span", { class: "key act-start" }, "t1 to t2, until it answers"));
  const element = h("figure", { class: "chart-box" }, h("figcaption", null, title), image, legend);
  let data = null;
  function draw() {
    if (!data) return;
    const width = Math.max(MIN_WIDTH, element.clientWidth);
    const { from, to, desired, serving, acts, chosen } = data;
    const top = Math.max(1, ...desired.map((it) => it[1]), ...serving.map((it) => it[1]));
    const { x, y, marks } = frame(width, height, from, to, top, (value) => String(Math.round(value * 10) / 10));
    const bar = (begin, end, kind) => begin && end && end > from &&
      svg("rect", { class: kind, x: x(Math.max(begin, from)), y: TOP, width: Math.max(1, x(Math.min(end, to)) - x(Math.max(begin, from))), height: height - TOP - BOTTOM });
    const bands = acts.map((it) => [
      bar(it.t0, it.t1, "act-detect"),
      bar(it.t1 ?? it.at, it.t2 ?? (it.status === "InProgress" ? to : it.ended_at), "act-start"),
    ]);
    const flags = acts.filter((it) => (it.t1 ?? it.at) >= from).map((it) => {
      const at = x(it.t1 ?? it.at);
      return svg("g", { class: `flag${it.id === chosen ? " chosen" : ""}`, onclick: () => onChoose(it.id) },
        svg("line", { x1: at, x2: at, y1: TOP, y2: height - BOTTOM }),
        svg("circle", { cx: at, cy: TOP + 5, r: 7 }),
        svg("text", { x: at, y: TOP + 8.5, "text-anchor": "middle" }, it.letter));
    });
    image.setAttribute("viewBox", `0 0 ${width} ${height}`);
    image.setAttribute("width", width);
    fill(image,
      svg("title", null, `${title}: ${acts.length} acts from ${clock(from)} to ${clock(to)}; now ${desired.at(-1)?.[1] ?? 0} wanted, ${serving.at(-1)?.[1] ?? 0} serving`),
      marks, bands,
      serving.length > 0 && svg("path", { class: "area line-serving", d: `${stepPath(serving, x, y, to)}V${y(0)}H${x(serving[0][0])}Z` }),
      svg("path", { class: "line line-serving", d: stepPath(serving, x, y, to) }),
      svg("path", { class: "line line-desired", d: stepPath(desired, x, y, to) }), flags);
  }
  const stop = onWidth(element, draw);
  return { element, update(next) { data = next; draw(); }, stop };
}

/** A small bar that is `share` full, from `begin`: a hop of a waterfall. Both are parts of 1. */
export function hopBar(begin, share, kind) {
  const width = Math.min(100, Math.max(0.4, share * 100));
  const left = Math.min(100 - width, Math.max(0, begin * 100));
  return h("span", { class: "hop-track" },
    h("span", { class: `hop-bar ${kind}`, style: { left: `${left.toFixed(2)}%`, width: `${width.toFixed(2)}%` } }));
}

/** A share of 1 as a bar with its text beside it. */
export function shareBar(share, text) {
  const fillWidth = `${(100 * Math.min(1, Math.max(0, share))).toFixed(1)}%`;
  const label = h("span", { class: "share-text" });
  setText(label, text);
  return h("span", { class: "share-bar" }, h("span", { class: "share-fill", style: { width: fillWidth } }), label);
}
