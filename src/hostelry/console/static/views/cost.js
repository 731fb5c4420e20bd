// Cost: the last day's cost by endpoint, component, adapter and tenant, from prices.toml.

import { fill, h, number } from "../dom.js";

const TITLES = { endpoint: "Endpoints", component: "Components", adapter: "Adapters", tenant: "Tenants" };

export const view = {
  name: "cost",
  title: "Cost",
  home: "cost",
  path: /^cost$/,
  topic: () => null,
  mount(root, context) {
    const body = h("div", null, h("p", { class: "hint", role: "status" }, "Adding up the last day …"));
    root.append(h("div", { class: "title-line" }, h("h1", null, "Cost"), h("button", { type: "button", onclick: draw }, "Refresh")), body);
    let ended = false;
    async function draw() {
      try {
        const found = await context.ask("look/cost");
        if (!ended) fill(body, found.missing ? h("section", { class: "panel" }, h("h2", null, "No cost is known"), h("p", null, found.missing)) : parts(found));
      } catch (error) {
        if (!ended) fill(body, h("p", { class: "failure", role: "alert" }, error.message));
      }
    }
    draw();
    return { update() {}, unmount() { ended = true; } };
  },
};

function parts({ reports, left_out: leftOut }) {
  const whole = reports.endpoint;
  const currency = whole.currency;
  return [
    h("dl", { class: "totals" },
      figure("Last 24 hours", amount(whole.total, currency)),
      figure("Hours with records", `${hours(whole.recorded_s)} of ${hours(whole.period_s)}`)),
    whole.missing_prices.length > 0 && h("div", { class: "note" },
      h("h2", null, "Prices that are not known"),
      h("p", null, whole.missing_prices.join(", ")),
      h("p", null, "Add them to prices.toml, with 0 for what costs nothing.")),
    Object.entries(TITLES).map(([by, title]) => table(title, [title.slice(0, -1), currency, "Calls", "Per 1,000 calls", "Per 1,000 tokens"],
      reports[by].rows.map((row) => [row.name, amount(row), row.calls === null ? "–" : number(row.calls), money(row.per_1000_calls), money(row.per_1000_tokens)]),
      leftOut[by].rows ? `${number(leftOut[by].rows)} more rows: hostelry cost --by ${by}` : "")),
    whole.idle.length > 0 && table("Idle", ["Name", "Why", currency],
      whole.idle.map((row) => [row.component ?? row.endpoint, row.reason, amount(row)])),
    whole.hours_without_calls.length > 0 && table("Hours without a call", ["Endpoint", "Hours", `${currency} that scale to zero would save at most`],
      whole.hours_without_calls.map((row) => [row.endpoint, row.hours, amount(row)])),
    whole.steps.length > 0 && table("Steps", ["Endpoint", "Kind", "Operation", "Steps", currency],
      whole.steps.map((row) => [row.endpoint || "(models and configurations)", row.kind, row.operation, number(row.steps), money(row.amount)])),
    whole.budgets.length > 0 && table("Budgets", ["Budget", "Period", "Spent", "Of"],
      whole.budgets.map((row) => [row.unmatched ? `${row.name} (${row.unmatched})` : row.is_over ? `${row.name} (over budget)` : row.name, row.period, amount(row), money(row.budget)])),
  ];
}

function figure(title, text) {
  return h("div", null, h("dt", null, title), h("dd", null, text));
}

function table(title, heads, rows, note = "") {
  return h("section", { class: "panel" }, h("h2", null, title),
    h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": title },
      h("table", null,
        h("thead", null, h("tr", null, heads.map((it) => h("th", { scope: "col" }, it)))),
        h("tbody", null, rows.map((row) => h("tr", null, row.map((cell, at) => (at ? h("td", null, cell) : h("th", { scope: "row" }, cell)))))))),
    note && h("p", { class: "hint" }, note));
}

/** An amount with its lower bound named: an unknown price is never 0. */
function amount(row, currency = "") {
  if (row.amount === null) return "unknown";
  return `${row.is_complete ? "" : "≥ "}${money(row.amount)}${currency && ` ${currency}`}`;
}

function money(value) {
  if (value === null) return "–";
  return value > 0 && value < 0.01 ? value.toPrecision(2) : value.toFixed(4);
}

function hours(seconds) {
  return (seconds / 3600).toFixed(2);
}
