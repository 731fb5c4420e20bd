// The pane beside the fleet: the selected copy or instance, explained, with what may be done.

import { age, bytes, duration, fill, h, number } from "../dom.js";
import { phaseText } from "./fleet_parts.js";

export function detailsPane(context, close) {
  const title = h("h2", { tabindex: "-1" }, "Nothing selected");
  const facts = h("div", { class: "facts" }, h("p", { class: "hint" }, "Select an instance or a copy: it is explained here."));
  const buttons = h("div", { class: "buttons" });
  const closing = h("button", { type: "button", class: "close", "aria-label": "Close the details", hidden: true, onclick: close }, "Close");
  const element = h("aside", { class: "details", "aria-label": "Details" }, h("div", { class: "details-head" }, title, closing), facts, buttons);
  element.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  let shown = "";
  let shownButtons = "";
  return {
    element,
    focus: () => title.focus({ preventScroll: true }),
    update(doc, selected) {
      const found = selected && described(doc, selected);
      element.dataset.open = found ? "yes" : "no";
      closing.hidden = !found;
      if (!found) {
        if (shown !== "none") {
          fill(title, selected ? "It is gone" : "Nothing selected");
          fill(facts, h("p", { class: "hint" }, selected ? "What was selected is not there any more." : "Select an instance or a copy: it is explained here."));
          fill(buttons);
        }
        shown = "none";
        shownButtons = "";
        return;
      }
      const text = JSON.stringify([found.title, found.facts]);
      if (text !== shown) {
        fill(title, found.title);
        fill(facts, h("dl", null, found.facts.filter(([, value]) => value !== null && value !== undefined && value !== "")
          .map(([name, value]) => [h("dt", null, name), h("dd", null, value)])));
        shown = text;
      }
      const acts = JSON.stringify(found.acts.map((it) => it.slice(0, 3)));
      if (acts !== shownButtons) {
        fill(buttons, context.session.mayAct
          ? found.acts.map(([label, name, args, input]) => h("button", { type: "button", onclick: () => context.act(name, args, input) }, label))
          : found.acts.length ? h("p", { class: "hint" }, "This session only reads. ", h("code", null, "hostelry console --acts"), " opens one that may scale and delete.") : null);
        shownButtons = acts;
      }
    },
  };
}

function described(doc, { instance, copy }) {
  const host = doc.instances[instance];
  if (!host) return null;
  if (!copy) return aboutInstance(doc, instance, host);
  return host.copies[copy] ? aboutCopy(doc, instance, host, copy, host.copies[copy]) : null;
}

function aboutInstance(doc, id, it) {
  const variant = doc.endpoints[it.endpoint]?.variants?.[it.variant];
  return {
    title: `Instance ${id}`,
    facts: [
      ["Type", it.type],
      ["Endpoint", `${it.endpoint}, variant ${it.variant}`],
      ["State", it.state],
      ["Problem", it.problem],
      ["Drain", it.drain ? drainText(it.drain) : null],
      ["Zone", it.zone],
      ["Age", age(it.createdAt)],
      ["Free", it.whole ? "nothing: a model's copy has its instance to itself" : it.free.text ?? "nothing"],
      ["CPUs", it.whole ? null : `${number(it.cpus - it.free.cpus)} reserved of ${number(it.cpus)} declared`],
      ["Memory", it.whole ? null : `${bytes(it.memory - it.free.memory)} reserved of ${bytes(it.memory)} declared`],
      ["Accelerators", it.accelerators && !it.whole ? `${it.accelerators - it.free.accelerators} reserved of ${it.accelerators} declared` : null],
      ["Copies", String(Object.keys(it.copies).length)],
      ["Variant", variant ? variantText(variant) : null],
    ],
    acts: [...drainActs(doc, id, it), ...instanceActs(it, variant)],
  };
}

function drainText({ copies_left: left, reason }) {
  return `since it was asked for, ${left ?? 0} copies are left${reason ? `; ${reason}` : ""}`;
}

function scopeOf(doc, endpoint) {
  const { account, region } = doc.endpoints[endpoint] ?? {};
  return { account, region, endpoint };
}

function drainActs(doc, id, it) {
  const args = { ...scopeOf(doc, it.endpoint), instance: id };
  return it.drain ? [["Cancel the drain…", "undrain", args]] : [["Drain…", "drain", args]];
}

function variantText({ desired, min, max }) {
  const bounds = min === undefined ? "" : `, scaled from ${min} to ${max}`;
  return desired === undefined ? "serverless" : `${desired} instances desired${bounds}`;
}

function instanceActs(it, variant) {
  const found = [];
  if (variant && !variant.serverless) {
    found.push(["Scale variant…", "scale-variant", { endpoint: it.endpoint, variant: it.variant },
      { name: "instances", label: "Instances", value: variant.desired ?? 1 }]);
  }
  found.push(["Delete endpoint…", "delete-endpoint", { endpoint: it.endpoint }]);
  return found;
}

function aboutCopy(doc, instance, host, id, it) {
  const component = doc.endpoints[host.endpoint]?.components?.[it.component];
  return {
    title: it.component ?? `Copy ${id}`,
    facts: [
      ["Copy", id],
      ["Why here", it.why],
      ["Phase", phaseText(it)],
      ["Reason", it.reason],
      ["Restart", it.restart ? restartText(it.restart) : null],
      ["Reserves", reserves(it)],
      ["Uses", it.used === undefined ? "memory not measured" : `${bytes(it.used)} of memory, ${bytes(it.peak)} at most so far`],
      ["Memory limit", it.maxMemory ? bytes(it.maxMemory) : null],
      ["Age", age(it.createdAt)],
      ["Ready for", it.readyAt ? age(it.readyAt) : null],
      ["Start", it.startS === undefined ? it.start : `${it.start ?? "start"}, ${duration(it.startS)}`],
      ["Restarts", it.restarts ? String(it.restarts) : null],
      ["Last end", it.lastEnd ? `${age(it.lastEndAt)} ago: ${it.lastEnd}` : null],
      ["Adapters", it.adapters ? String(it.adapters) : null],
      ["Component", component ? `${component.ready} of ${component.desired} copies ready; ${component.status}` : null],
      ["Placement", component?.note],
      ["Instance", `${host.type}, ${instance}`],
      ["Endpoint", host.endpoint],
    ],
    acts: [["Restart copy…", "restart", { ...scopeOf(doc, host.endpoint), copy: id }], ...(component ? componentActs(scopeOf(doc, host.endpoint), it.component, component) : instanceActs(host, doc.endpoints[host.endpoint]?.variants?.[host.variant]))],
  };
}

function restartText({ replaced_by: by, failed, reason }) {
  if (failed) return `failed: ${reason ?? "no reason is known"}`;
  return by ? `being replaced by ${by}` : `waits for its turn${reason ? `: ${reason}` : ""}`;
}

function reserves(it) {
  if (it.cpus === undefined) return "the whole instance";
  const parts = [`${number(it.cpus)} CPUs`, bytes(it.memory)];
  if (it.accelerators) parts.push(`${it.accelerators} accelerators${it.devices ? ` (${it.devices.join(", ")})` : ""}`);
  return parts.join(", ");
}

function componentActs(scope, name, component) {
  const { endpoint } = scope;
  return [
    ["Restart component…", "restart", { ...scope, component: name }],
    ["Scale component…", "scale-component", { endpoint, component: name }, { name: "copies", label: "Copies", value: component.desired }],
    ["Delete component…", "delete-component", { endpoint, component: name }],
  ];
}
