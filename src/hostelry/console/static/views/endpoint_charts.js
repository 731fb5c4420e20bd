// The charts and figures of an endpoint's chosen target.

import { beginOf, lineChart, milliseconds } from "../charts.js";
import { h, number } from "../dom.js";
import { tiles } from "./pieces.js";

const FINE_GAP_S = 11; // of 5-second buckets
const perSecond = (value) => (value === null || value === undefined ? "–" : number(value));

export function targetCharts() {
  const figures = tiles("The chosen target now");
  const traffic = lineChart({ title: "Requests a second", format: perSecond });
  const latency = lineChart({ title: "Latency of the model server", format: milliseconds });
  const flight = lineChart({ title: "Requests in flight and queued", format: perSecond });
  const first = lineChart({ title: "Time to the first chunk of a stream", format: milliseconds });
  const charts = h("div", { class: "charts" }, traffic.element, latency.element, flight.element, first.element);
  return {
    elements: [figures.element, charts],
    update(doc) {
      const target = doc.targets[doc.chosen] ?? {};
      figures.update(figuresOf(target, doc.load_known));
      const minutes = doc.minutes;
      const coarse = minutes <= 60 ? 130 : 610;
      const gap = minutes === 15 ? FINE_GAP_S : coarse;
      const flow = ordered(doc.traffic);
      const times = ordered(doc.latency);
      const span = { from: beginOf(doc.now, minutes * 60, flow, times), to: doc.now };
      traffic.update({ ...span, gap, series: [
        { name: "requests", class: "s0", area: true, points: column(flow, 0) },
        { name: "4xx", class: "s2", points: column(flow, 1) },
        { name: "5xx", class: "bad", points: column(flow, 2) },
      ] });
      flight.update({ ...span, gap, series: [
        { name: "in flight", class: "s1", area: true, points: column(flow, 3) },
        ...(minutes === 15 ? [{ name: "queued", class: "bad", points: column(flow, 4) }] : []),
      ] });
      latency.update({ ...span, gap: coarse, series: ["p50", "p90", "p99"].map((name, at) =>
        ({ name, class: ["s1", "s0", "s3"][at], points: column(times, at) })) });
      const streams = column(times, 3).some((it) => it[1] !== null);
      first.element.hidden = !streams;
      if (streams) first.update({ ...span, gap: coarse, series: [
        { name: "p50", class: "s1", points: column(times, 3) },
        { name: "p99", class: "s3", points: column(times, 4) },
      ] });
    },
    stop() {
      for (const chart of [traffic, latency, flight, first]) chart.stop();
    },
  };
}

function figuresOf(target, isKnown) {
  const none = isKnown ? 0 : null;
  const streams = target.first_p50 !== undefined;
  return [
    { title: "Requests/s", value: perSecond(target.rate ?? none), hint: "Mean of the last 10 seconds" },
    { title: "Errors/s", value: perSecond(target.error_rate ?? none), tone: target.error_rate ? "bad" : "", hint: "Answered with 4xx or 5xx" },
    { title: "p50", value: milliseconds(target.p50), hint: "Of the last minute, on the model server" },
    { title: "p90", value: milliseconds(target.p90), hint: "Of the last minute" },
    { title: "p99", value: milliseconds(target.p99), hint: "Of the last minute" },
    ...(streams ? [{ title: "First chunk p50", value: milliseconds(target.first_p50), hint: "Of streams: the first token" }] : []),
    { title: "In flight", value: perSecond(target.in_flight ?? none) },
    { title: "Queued", value: target.held ? `${target.held}, for ${target.oldest_held_s} s` : perSecond(none), tone: target.held ? "bad" : "", hint: "Wait for a copy" },
    { title: "Copies ready", value: target.desired === undefined ? "of its base" : `${target.ready} of ${target.desired}`, tone: (target.ready ?? 0) < (target.desired ?? 0) ? "bad" : "" },
  ];
}

/** [[at, values]] in the order of time. */
function ordered(map) {
  return Object.entries(map ?? {}).map(([at, values]) => [Number(at), values]).sort((a, b) => a[0] - b[0]);
}

function column(rows, at) {
  return rows.map(([instant, values]) => [instant, values[at] ?? null]);
}
