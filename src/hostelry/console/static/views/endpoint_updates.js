// Updates of an endpoint: the one under way with its step, and past ones; the alarms that watch it.

import { clock, shareBar } from "../charts.js";
import { duration, fill, h, keyed } from "../dom.js";
import { instant, statusMark } from "./pieces.js";

export function updatesSection() {
  const progress = h("p", { class: "progress", role: "status" });
  const list = h("ol", { class: "updates" });
  const none = h("p", { class: "hint" }, "It was not updated yet.");
  return {
    element: h("section", { class: "panel" }, h("h2", null, "Updates"), progress, none, list),
    update(doc) {
      const updates = Object.entries(doc.updates ?? {}).sort((a, b) => b[1].began_at - a[1].began_at);
      progress.hidden = !doc.progress && !doc.going_back;
      if (!progress.hidden) {
        const text = doc.going_back ? `Going back: ${doc.going_back}` : doc.progress;
        if (progress.textContent !== text) fill(progress, text);
      }
      none.hidden = updates.length > 0;
      keyed(list, updates, ([id]) => id, () => h("li", { class: "update" }), (line, [, it]) => {
        const text = JSON.stringify(it);
        if (line.dataset.shown === text) return;
        line.dataset.shown = text;
        fill(line, updateParts(it));
      });
    },
  };
}

function updateParts(it) {
  const took = it.ended_at ? ` after ${duration(it.ended_at - it.began_at)}` : "";
  return [
    h("p", { class: "act-head" }, h("b", null, `${it.from} → ${it.to}`), " ", statusMark(it.outcome ?? "under way"),
      h("span", { class: "soft" }, `${took}, began ${clock(it.began_at)}`)),
    it.cause && h("p", null, it.cause),
    h("ol", { class: "steps" }, it.steps.map((step) => h("li", { "data-now": step.ended_at ? null : "yes" },
      h("span", { class: "step-name" }, step.name),
      shareBar(step.share, `${Math.round(100 * step.share)} % of traffic`),
      h("span", { class: "soft" }, step.ended_at ? duration(step.ended_at - step.began_at) : `since ${clock(step.began_at)}`,
        step.verdict ? `, ${step.verdict}` : "")))),
    it.alarms.length > 0 && h("p", { class: "soft" }, `Alarms watched: ${it.alarms.join(", ")}`),
  ];
}

export function alarmsSection() {
  const list = h("ul", { class: "acts" });
  const none = h("p", { class: "hint" }, "No alarm watches it.");
  return {
    element: h("section", { class: "panel" }, h("h2", null, "Alarms"), none, list),
    update(doc) {
      const alarms = Object.entries(doc.alarms ?? {}).sort((a, b) => rank(a) - rank(b) || a[0].localeCompare(b[0]));
      none.hidden = alarms.length > 0;
      keyed(list, alarms, ([name]) => name, () => h("li", { class: "act" }), (line, [name, it]) => {
        const text = JSON.stringify(it);
        if (line.dataset.shown === text) return;
        line.dataset.shown = text;
        const mark = statusMark(it.state);
        if (isScaling(name) && it.state === "ALARM") mark.dataset.tone = "warn"; // it scales: no trouble
        fill(line, h("p", { class: "act-head" }, mark, " ", h("b", { class: "name" }, name)),
          h("p", { class: "soft" }, it.metric ?? "", " since ", instant(it.at), `: ${it.reason ?? ""}`));
      });
    },
  };
}

/** Alarms that a scaling policy made are in ALARM while it acts. */
function isScaling(name) {
  return name.startsWith("TargetTracking-");
}

function rank([name, alarm]) {
  return alarm.state === "ALARM" && !isScaling(name) ? 0 : 1;
}
