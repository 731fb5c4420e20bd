// The scaling timeline of an endpoint: capacity, and each act with its receipt.

import { beginOf, capacityChart, clock } from "../charts.js";
import { age, fill, h, keyed, number, setText } from "../dom.js";
import { statusMark } from "./pieces.js";

const LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

export function scalingSection() {
  const list = h("div");
  const none = h("p", { class: "hint" }, "Nothing here is a scalable target. ",
    h("code", null, "RegisterScalableTarget"), " and a policy make copies follow the load.");
  const element = h("section", { class: "panel" }, h("h2", null, "Scaling"), none, list);
  const parts = new Map();
  return {
    element,
    update(doc) {
      const targets = Object.entries(doc.scaling ?? {});
      none.hidden = targets.length > 0;
      keyed(list, targets, ([id]) => id, ([id]) => {
        const part = oneTarget(id);
        parts.set(id, part);
        return part.element;
      }, (_, [id, it]) => parts.get(id).update(it, doc));
    },
    stop() {
      for (const part of parts.values()) part.stop();
    },
  };
}

function oneTarget(id) {
  const heading = h("h3");
  const decision = h("p", { class: "hint" });
  const acts = h("ol", { class: "acts" });
  const none = h("p", { class: "hint" }, "No act in this time.");
  let chosen = null;
  let last = null;
  const chart = capacityChart({
    title: "Capacity and acts", unit: "capacity",
    onChoose(act) {
      chosen = act;
      draw();
      acts.querySelector(`[data-act="${CSS.escape(act)}"]`)?.scrollIntoView({ block: "nearest" });
    },
  });
  function draw() {
    const [it, doc] = last;
    const shown = Object.entries(it.acts ?? {}).map(([id_, act]) => ({ id: id_, ...act }))
      .sort((a, b) => a.at - b.at).map((act, at) => ({ ...act, letter: LETTERS[at] ?? "·" }));
    const unit = it.component ? "copies" : "instances";
    setText(heading, `${it.component ?? it.variant ?? id}: ${it.min} to ${it.max} ${unit}`);
    fill(decision, it.decision ? `${age(it.decision.at)} ago: ${it.decision.text}` : "No decision yet.", it.problem ? ` ${it.problem}` : "");
    const [desired, serving] = [points(it.desired), points(it.serving)];
    chart.update({ from: beginOf(doc.now, doc.minutes * 60, desired, serving), to: doc.now, desired, serving, acts: shown, chosen });
    none.hidden = shown.length > 0;
    keyed(acts, shown.reverse(), (act) => `${act.id}`, () => h("li"), (line, act) => {
      const text = JSON.stringify([act, act.id === chosen]);
      if (line.dataset.shown === text) return;
      line.dataset.shown = text;
      line.dataset.act = act.id;
      line.className = act.id === chosen ? "act chosen" : "act";
      fill(line, actParts(act, unit));
    });
  }
  return {
    element: h("div", { class: "scaling-target" }, heading, decision, chart.element, none, acts),
    update(it, doc) {
      last = [it, doc];
      draw();
    },
    stop: chart.stop,
  };
}

function points(map) {
  return Object.entries(map ?? {}).map(([at, value]) => [Number(at), value]).sort((a, b) => a[0] - b[0]);
}

function actParts(act, unit) {
  const times = [
    act.t0 && ["t0 load rose", clock(act.t0)],
    act.t1 && ["t1 decided", act.t0 ? `${clock(act.t1)} (+${(act.t1 - act.t0).toFixed(1)} s)` : clock(act.t1)],
    act.t2 && ["t2 first answer", `${clock(act.t2)} (+${(act.t2 - act.t1).toFixed(1)} s)`],
    act.t0 && [`delayed, failed`, `${act.delayed ?? 0}, ${act.failed ?? 0}`],
    ["signal", Object.entries(act.signal ?? {}).map(([name, value]) => `${name} ${number(value)}`).join(", ") || "none"],
  ].filter(Boolean);
  return [
    h("p", { class: "act-head" }, h("span", { class: "letter" }, act.letter), " ", h("b", null, `${act.from} → ${act.to} ${unit}`), " ",
      statusMark(act.status), " ", h("span", { class: "soft" }, clock(act.at), act.by ? ` by ${act.by}` : "")),
    h("dl", { class: "facts-row" }, times.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
    h("p", { class: "soft" }, act.cause),
    act.status !== "Successful" && act.message && h("p", null, act.message),
  ];
}
