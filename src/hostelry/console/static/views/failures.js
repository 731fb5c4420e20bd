// Failures: what fails now and what failed lately, by cause, each with the next step.

import { age, fill, h, keyed, setText } from "../dom.js";
import { choice, commandLine, logBlock } from "./pieces.js";

const MINUTES = [["15", "15 min"], ["60", "1 h"], ["360", "6 h"]];
const KINDS = {
  platform: "Platform", instance: "Instance", endpoint: "Endpoint", component: "Component", copy: "Copy",
  adapter: "Adapter", alarm: "Alarm", rollback: "Rollback", call: "Failed calls",
};
const PROCESSES = new Set(["control", "gateway", "jobs"]);

export const view = {
  name: "failures",
  title: "Failures",
  home: "failures",
  path: /^failures$/,
  topic() {
    const minutes = new URLSearchParams(location.search).get("minutes");
    return minutes ? { view: "failures", minutes } : { view: "failures" };
  },
  mount(root) {
    const state = h("p", { class: "summary", role: "status", "aria-live": "polite" });
    const now = h("ul", { class: "failures" });
    const lately = h("ul", { class: "failures" });
    const nowHeading = h("h2", null, "Now");
    const latelyHeading = h("h2", null, "Lately");
    root.append(
      h("div", { class: "title-line" }, h("h1", null, "Failures"), choice("Looking back", "minutes", MINUTES, "15")),
      state, nowHeading, now, latelyHeading, lately);
    return {
      update(doc) {
        const groups = [...processes(doc.trouble ?? {}), ...Object.entries(doc.groups ?? {}).map(([id, it]) => ({ id, ...it }))];
        groups.sort((a, b) => a.place - b.place);
        const present = groups.filter((it) => it.when === "now");
        const past = groups.filter((it) => it.when !== "now");
        const isWhole = !Object.keys(doc.trouble ?? {}).length;
        setText(state, summary(present, past, doc.minutes, isWhole));
        state.dataset.tone = present.length ? "bad" : isWhole ? "good" : null;
        nowHeading.hidden = !present.length;
        latelyHeading.hidden = !past.length;
        draw(now, present);
        draw(lately, past);
      },
    };
  },
};

/** Processes that do not answer, as groups before all others. */
function processes(trouble) {
  return Object.entries(trouble).filter(([name]) => PROCESSES.has(name)).map(([name, text]) => ({
    id: `process/${name}`, place: -1, when: "now", kind: "platform", text, count: 1, names: [name], names_left_out: 0,
    advice: "The supervisor starts it again. What is shown of it here is what it said last.", command: `hostelry logs ${name}`,
  }));
}

function summary(present, past, minutes, isWhole) {
  const causes = (count) => (count === 1 ? "1 cause" : `${count} causes`);
  if (!present.length && !isWhole) return "Whether something fails is not known: not everything answers.";
  if (!present.length && !past.length) return `Nothing fails, and nothing failed in the last ${minutes} minutes.`;
  const before = past.length ? ` ${causes(past.length)} of the last ${minutes} minutes.` : "";
  return present.length ? `${causes(present.length)} of trouble now.${before}` : `Nothing fails now.${before}`;
}

function draw(list, groups) {
  keyed(list, groups, (it) => it.id, () => h("li", { class: "failure-group" }, h("div"), h("div", { class: "stamp soft" })), (line, it) => {
    const { since, newest, place, ...said } = it;
    const text = JSON.stringify({ ...said, since, newest: it.when === "now" ? newest : null });
    line.dataset.when = it.when;
    if (line.dataset.shown !== text) {
      line.dataset.shown = text;
      line.dataset.kind = it.kind;
      fill(line.children[0], parts(it));
    }
    setText(line.children[1], stamp(it));
  });
}

function stamp(it) {
  if (!it.newest) return "";
  return it.when === "now" ? `for ${age(it.since)}` : it.count > 1 ? `last ${age(it.newest)} ago, first ${age(it.since)} ago` : `${age(it.newest)} ago`;
}

function parts(it) {
  const more = it.names_left_out ? ` and ${it.names_left_out} more` : "";
  return [
    h("h3", null, h("span", { class: "kind" }, KINDS[it.kind] ?? it.kind), " ", it.names.join(", "), more,
      it.count > 1 && h("span", { class: "count" }, ` × ${it.count}`)),
    h("p", { class: "cause" }, it.text),
    it.log?.length > 0 && h("details", null, h("summary", null, "What it printed last"), logBlock(it.log)),
    h("p", { class: "next" }, h("b", null, "Next: "), it.advice),
    h("p", { class: "row" }, it.link && h("a", { href: `/console/${it.link}` }, linkText(it.link)), it.command && commandLine(it.command)),
  ];
}

function linkText(link) {
  if (link === "fleet") return "Show the fleet";
  if (link.startsWith("call/")) return "Show the newest call";
  return "Show the endpoint";
}

