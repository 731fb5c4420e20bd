// The strip above the fleet: how much there is, and how much of it is reserved.

import { bytes, h, number, setText, share } from "../dom.js";

const FIGURES = [
  ["Instances", (it) => number(it.instances), () => null],
  ["Copies ready", (it) => `${number(it.ready)}/${number(it.copies)}`, (it) => [it.ready, it.copies]],
  ["No place", (it) => number(it.unplaced), () => null],
  ["Accel. reserved", (it) => `${number(it.acceleratorsReserved)}/${number(it.accelerators)}`, (it) => [it.acceleratorsReserved, it.accelerators]],
  ["CPUs reserved", (it) => `${number(it.cpusReserved)}/${number(it.cpus)}`, (it) => [it.cpusReserved, it.cpus]],
  ["Mem. reserved", (it) => share(it.memoryReserved, it.memory), (it) => [it.memoryReserved, it.memory]],
  ["Memory used", (it) => bytes(it.memoryUsed), (it) => [it.memoryUsed, it.memory]],
];

export function totalsStrip() {
  const figures = FIGURES.map(([name, text, part]) => {
    const value = h("dd", null, "–");
    const meter = h("div", { class: "meter", "aria-hidden": "true" }, h("i"));
    return { text, part, value, meter, element: h("div", null, h("dt", null, name), value, meter) };
  });
  return {
    element: h("dl", { class: "totals" }, figures.map((it) => it.element)),
    /** Show the totals; null while they are not known. */
    update(totals) {
      for (const { text, part, value, meter } of figures) {
        setText(value, totals ? text(totals) : "–");
        const shown = totals && part(totals);
        meter.hidden = !shown || !shown[1];
        if (shown) meter.firstChild.style.width = `${shown[1] ? Math.min(1, shown[0] / shown[1]) * 100 : 0}%`;
      }
      figures[2].element.dataset.bad = totals?.unplaced ? "yes" : "no";
    },
  };
}
