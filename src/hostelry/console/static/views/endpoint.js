// Endpoint: traffic, latency, copies, the scaling timeline, updates and alarms of one endpoint.

import { fill, h, setText } from "../dom.js";
import { targetCharts } from "./endpoint_charts.js";
import { scalingSection } from "./endpoint_scaling.js";
import { copiesSection, targetsSection } from "./endpoint_tables.js";
import { alarmsSection, updatesSection } from "./endpoint_updates.js";
import { choice, commandLine, logBlock, setStatus, statusMark, targetPath } from "./pieces.js";

const MINUTES = [["15", "15 min"], ["60", "1 h"], ["360", "6 h"]];

export const view = {
  name: "endpoint",
  title: "Endpoint",
  within: "endpoints",
  path: /^endpoint\/([^/]+)(?:\/(component|variant)\/([^/]+))?$/,
  topic(match) {
    const topic = { view: "endpoint", name: decodeURIComponent(match[1]) };
    if (match[2]) Object.assign(topic, { kind: match[2], target: decodeURIComponent(match[3]) });
    const minutes = new URLSearchParams(location.search).get("minutes");
    return minutes ? { ...topic, minutes } : topic;
  },
  mount(root, context, match) {
    const name = decodeURIComponent(match[1]);
    document.title = `${name} · Hostelry`;
    const status = statusMark("");
    status.hidden = true;
    const config = h("span", { class: "soft" });
    const alert = h("div", { class: "note", hidden: true });
    const chosen = h("h2");
    const charts = targetCharts();
    const targets = targetsSection(context, name);
    const copies = copiesSection();
    const scaling = scalingSection();
    const updates = updatesSection();
    const alarms = alarmsSection();
    const parts = [targets, copies, scaling, updates, alarms];
    const body = h("div", { hidden: true },
      h("section", { class: "panel" }, h("div", { class: "title-line" }, chosen, choice("Time shown", "minutes", MINUTES, "15")), charts.elements),
      targets.element, copies.element, scaling.element,
      h("div", { class: "columns" }, updates.element, alarms.element));
    const missing = h("div");
    root.append(
      h("div", { class: "title-line" },
        h("h1", null, h("a", { href: "/console/endpoints" }, "Endpoints"), " / ", name), status, config,
        h("span", { class: "grow" }),
        h("a", { href: `/console/calls?endpoint=${encodeURIComponent(name)}` }, "Slowest calls"),
        h("a", { href: `/console/calls?order=failed&endpoint=${encodeURIComponent(name)}` }, "Failed calls")),
      alert, missing, body);
    return {
      update(doc) {
        if (doc.missing) {
          body.hidden = true;
          return drawMissing(missing, name, doc.names);
        }
        if (!doc.status) {
          body.hidden = true;
          return fill(missing, h("p", { class: "hint" }, "Control has not answered yet: nothing is known of this endpoint."));
        }
        if (!match[2] && doc.chosen) return context.replace(targetPath(name, doc.chosen) + location.search);
        fill(missing);
        body.hidden = false;
        setStatus(status, doc.status, doc.tone);
        status.hidden = false;
        setText(config, `config ${doc.config}${doc.pending_config ? ` → ${doc.pending_config}` : ""}`);
        drawAlert(alert, doc, name);
        setText(chosen, doc.chosen ? doc.chosen.slice(doc.chosen.indexOf("/") + 1) : "No target");
        charts.update(doc);
        for (const part of parts) part.update(doc);
      },
      unmount() {
        for (const part of [charts, ...parts]) part.stop?.();
      },
    };
  },
};

/** Why it is not as it should be; the reason of a past update is shown with that update. */
function drawAlert(alert, doc, name) {
  const isPast = doc.status === "InService" && Object.values(doc.updates ?? {}).some((it) => it.outcome === "rolled back");
  const text = doc.going_back ? `Its update goes back: ${doc.going_back}` : (isPast ? null : doc.reason) ?? (doc.serving && `It ${doc.serving}.`);
  alert.hidden = !text;
  if (!text || alert.dataset.shown === text) return;
  alert.dataset.shown = text;
  const [cause, lines] = text.split(" Last log lines: ");
  fill(alert, h("p", null, cause), logBlock(lines?.split("\n")), h("p", null, "Next: ", commandLine(`hostelry logs ${name}`)));
}

function drawMissing(element, name, names) {
  const text = JSON.stringify(names);
  if (element.dataset.shown === text) return;
  element.dataset.shown = text;
  fill(element, h("p", null, `There is no endpoint ${name}.`),
    names?.length ? h("p", null, "There are: ", names.map((it, at) => [at ? ", " : "", h("a", { href: `/console/endpoint/${encodeURIComponent(it)}` }, it)])) : h("p", null, "There are none."));
}
