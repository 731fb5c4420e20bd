// Parts of the Fleet view: colours, bars of what is declared, reserved and used.

import { bytes, duration, h, keyed, number, setAttribute, setText, share } from "../dom.js";

const NUM_COLOURS = 10;

function hashed(name) {
  let sum = 7;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 65521;
  return sum % NUM_COLOURS;
}

/** A colour for each component of an endpoint: mostly the same always, and no two alike while there are enough. */
export function colours(names) {
  const found = new Map();
  for (const name of [...names].sort()) {
    let number = hashed(name);
    const taken = new Set(found.values());
    for (let step = 0; taken.has(number) && step < NUM_COLOURS; step += 1) number = (number + 1) % NUM_COLOURS;
    found.set(name, number);
  }
  return (name) => found.get(name) ?? hashed(name ?? "");
}

/** The end of an id, which is what differs. */
export function shortId(id) {
  return id.length > 14 ? `…${id.slice(-12)}` : id;
}

/** A copy's phase, with how long it has been in the making. */
export function phaseText(copy) {
  if (copy.draining) return "draining";
  if (copy.phase === "ready") return copy.restarts ? `ready, ${copy.restarts} restart${copy.restarts === 1 ? "" : "s"}` : "ready";
  const since = ["failed", "stopping", "unhealthy"].includes(copy.phase) ? "" : ` ${duration(Date.now() / 1000 - copy.createdAt)}`;
  return `${copy.phase}${since}`;
}

/** The copies' shares of one resource: [{ id, copy, share, used }], shares of 1. */
export function shares(instance, resource) {
  const total = instance[resource];
  return Object.entries(instance.copies).map(([id, copy]) => {
    const reserved = copy[resource] ?? (copy.cpus === undefined ? total : 0);
    const used = resource === "memory" && copy.used !== undefined ? copy.used / total : null;
    return { id, copy, share: total ? reserved / total : 0, used };
  }).filter((it) => it.share > 0);
}

/** Draw an instance's lanes: accelerators one cell each, CPUs and memory as bars. */
export function bars(host, instance, { select, selected, colour }) {
  const free = instance.free;
  const lanes = [];
  const part = (text, all) => instance.whole ? `all ${all}` : text;
  if (instance.accelerators) lanes.push(["accelerators", "Accel.", part(`${instance.accelerators - free.accelerators}/${instance.accelerators}`, instance.accelerators)]);
  lanes.push(["cpus", "CPUs", part(`${number(instance.cpus - free.cpus)}/${number(instance.cpus)}`, number(instance.cpus))]);
  lanes.push(["memory", "Memory", part(share(instance.memory - free.memory, instance.memory), bytes(instance.memory))]);
  keyed(host, lanes, ([name]) => name, makeLane, (lane, [name, , text]) => {
    const [, bar, figure] = lane.children;
    setText(figure, text);
    setAttribute(bar, "title", `${name}: reserved ${text}`);
    if (name === "accelerators") drawCells(bar, instance, { select, selected, colour });
    else drawBar(bar, shares(instance, name), { select, selected, colour });
  });
}

function makeLane([name, title]) {
  return h("div", { class: `lane lane-${name}` },
    h("span", { class: "lane-name" }, title), h("div", { class: "lane-bar" }), h("span", { class: "lane-figure" }));
}

function drawBar(bar, found, { select, selected, colour }) {
  keyed(bar, found, (it) => it.id, (it) => h("div", { class: "share", onclick: () => select(it.id) }, h("i")), (element, it) => {
    setAttribute(element, "data-colour", colour(it.copy.component ?? it.id));
    setAttribute(element, "data-selected", selected === it.id);
    setAttribute(element, "title", shareTitle(it));
    element.style.width = `${Math.min(it.share, 1) * 100}%`;
    element.firstChild.style.width = it.used === null ? "0" : `${Math.min(it.used / it.share, 1) * 100}%`;
    setAttribute(element, "data-over", it.used !== null && it.used > it.share);
  });
}

function shareTitle({ id, copy, used }) {
  const name = copy.component ?? shortId(id);
  return used === null ? name : `${name}: ${bytes(copy.used)} used of ${bytes(copy.memory)} reserved`;
}

function drawCells(bar, instance, { select, selected, colour }) {
  const owners = new Map();
  const unknown = [];
  for (const [id, copy] of Object.entries(instance.copies)) {
    for (const device of copy.devices ?? []) owners.set(device, id);
    if (!copy.devices) for (let num = copy.accelerators ?? 0; num > 0; num -= 1) unknown.push(id);
  }
  const cells = Array.from({ length: instance.accelerators }, (_, device) => ({ device, id: owners.get(device) }));
  for (const cell of cells) if (!cell.id && unknown.length) cell.id = unknown.shift();
  keyed(bar, cells, (it) => it.device, (it) => h("div", { class: "cell", onclick: (event) => event.target.dataset.copy && select(event.target.dataset.copy) }), (element, it) => {
    const copy = instance.copies[it.id];
    setAttribute(element, "data-copy", it.id);
    setAttribute(element, "data-selected", it.id !== undefined && selected === it.id);
    setAttribute(element, "data-colour", copy ? colour(copy.component ?? it.id) : null);
    setAttribute(element, "title", `accelerator ${it.device}: ${copy ? copy.component ?? shortId(it.id) : "free"}`);
  });
}
