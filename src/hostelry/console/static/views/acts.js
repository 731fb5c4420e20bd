// Acts: what was done from the console, by which session, with what outcome.

import { fill, h } from "../dom.js";

export const view = {
  name: "acts",
  title: "Acts",
  home: "acts",
  path: /^acts$/,
  topic: () => null,
  mount(root, context) {
    const body = h("tbody");
    const failure = h("p", { class: "failure", role: "alert" });
    const refresh = h("button", { type: "button", onclick: draw }, "Refresh");
    root.append(
      h("h1", null, "Acts"),
      h("p", { class: "hint" }, "What people did on this platform: from here, and by commands. An act of the console is written down before it is done, and again with its outcome."),
      h("p", null, refresh), failure,
      h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": "Acts" },
        h("table", null,
          h("caption", null, "The last 100 entries of the audit log, the newest first"),
          h("thead", null, h("tr", null, ["Time", "Who", "Act", "What", "Outcome"].map((it) => h("th", { scope: "col" }, it)))),
          body)));
    async function draw() {
      try {
        const { entries } = await context.ask("audit");
        fill(body, entries.length ? entries.map(line) : h("tr", null, h("td", { colspan: 5 }, "Nothing was done yet.")));
        fill(failure);
      } catch (error) {
        fill(failure, error.message);
      }
    }
    draw();
    return { update() {} };
  },
};

function line(entry) {
  return h("tr", null,
    h("td", null, h("time", { datetime: new Date(entry.at * 1000).toISOString() }, new Date(entry.at * 1000).toLocaleString())),
    h("td", null, entry.who),
    h("td", null, entry.act),
    h("td", null, entry.target),
    h("td", { "data-outcome": ["accepted", "begun"].includes(entry.outcome) ? entry.outcome : "failed" }, entry.outcome));
}
