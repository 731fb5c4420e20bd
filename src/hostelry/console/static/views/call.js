// Call: one request hop by hop, how its copies were chosen, and their log of that moment.

import { clock, hopBar, milliseconds, shareBar } from "../charts.js";
import { bytes, fill, h, number } from "../dom.js";
import { commandLine, logBlock, statusMark } from "./pieces.js";

const INDENT_PX = 14;

export const view = {
  name: "call",
  title: "Call",
  within: "calls",
  path: /^call\/([^/]+)$/,
  topic: () => null,
  mount(root, context, match) {
    const id = decodeURIComponent(match[1]);
    document.title = `Call ${id.slice(0, 8)} · Hostelry`;
    const body = h("div", null, h("p", { class: "hint", role: "status" }, "Asking the gateway's workers …"));
    root.append(h("div", { class: "title-line" },
      h("h1", null, h("a", { href: "/console/calls" }, "Calls"), " / ", h("span", { class: "mono" }, id)),
      h("button", { type: "button", onclick: draw }, "Refresh")), body);
    let ended = false;
    async function draw() {
      try {
        const call = await context.ask(`look/call?id=${encodeURIComponent(id)}`);
        if (!ended) fill(body, call.missing ? missing(id, call.missing) : parts(call));
      } catch (error) {
        if (!ended) fill(body, h("p", { class: "failure", role: "alert" }, error.message));
      }
    }
    draw();
    return { update() {}, unmount() { ended = true; } };
  },
};

function missing(id, why) {
  return h("section", { class: "panel" }, h("h2", null, "This call is not known"), h("p", null, why),
    h("p", null, "Next: ", h("a", { href: "/console/calls" }, "the slowest calls"), ", ", h("a", { href: "/console/calls?order=failed" }, "those that failed"),
      ", or ", commandLine(`hostelry jobs show ${id}`), " for an asynchronous request."));
}

function parts(call) {
  return [
    facts(call),
    call.error && h("div", { class: "note" }, h("h2", null, `${call.status} ${call.code ?? ""}`), h("p", null, call.error)),
    waterfall(call),
    call.choices.length > 0 && h("section", { class: "panel" }, h("h2", null, "How copies were chosen"), call.choices.map(choice)),
    logs(call),
  ];
}

function facts(call) {
  const tokens = Object.entries(call.tokens).map(([name, count]) => `${number(count)} ${name.replaceAll("_", " ")}`).join(", ");
  const endpoint = h("a", { href: `/console/endpoint/${encodeURIComponent(call.endpoint)}` }, call.endpoint);
  const rows = [
    ["Status", h("span", { class: "status", "data-tone": call.status < 400 ? "good" : "bad" }, String(call.status))],
    ["Took", milliseconds(call.ms)],
    ["First byte", call.first_byte_ms === null ? null : milliseconds(call.first_byte_ms)],
    ["Operation", call.operation],
    ["Endpoint", endpoint],
    ["Component", call.component],
    ["Base", call.base_component],
    ["Variant", call.variant],
    ["Model", call.target_model],
    ["Tokens", tokens || null],
    ["Tokens/s", call.tokens_per_s === null ? null : number(call.tokens_per_s)],
    ["In, out", `${bytes(call.bytes_in)}, ${bytes(call.bytes_out)}`],
    ["Began", `${new Date(call.at * 1000).toISOString().slice(0, 10)} ${clock(call.at)}`],
    ["Worker", call.worker],
    ["Made by", call.parent && h("a", { href: `/console/call/${encodeURIComponent(call.parent)}`, class: "mono" }, call.parent.slice(0, 8))],
    ["traceparent", call.traceparent && h("code", null, call.traceparent)],
  ].filter(([, value]) => value);
  return [
    h("p", { class: "summary" }, call.summary),
    h("dl", { class: "totals call-facts" }, rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
  ];
}

function waterfall(call) {
  const whole = Math.max(call.ms, 0.001);
  return h("section", { class: "panel" }, h("h2", null, "Hop by hop"),
    h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": "Hops" },
      h("table", { class: "waterfall" },
        h("caption", null, `The whole call took ${milliseconds(call.ms)}. Wait is the time between the hop before and this one.`),
        h("thead", null, h("tr", null,
          h("th", { scope: "col" }, "Hop"), h("th", { scope: "col", class: "numeric" }, "Time"), h("th", { scope: "col", class: "hop-column" }, "Of the whole call"),
          ["Begins", "Wait", "In, out"].map((it) => h("th", { scope: "col", class: "numeric" }, it)), h("th", { scope: "col" }, "Note"))),
        h("tbody", null, call.rows.map((it) => hop(it, whole)),
          call.rows_left_out > 0 && h("tr", null, h("td", { colspan: 7 }, `and ${call.rows_left_out} more: hostelry trace ${call.id}`))))));
}

function hop(it, whole) {
  const kind = it.problem ? "hop-failed" : it.kind === "copy" ? "hop-copy" : it.name === "queue" || it.name === "model" ? "hop-waits" : "hop-own";
  const name = it.call
    ? h("a", { href: `/console/call/${encodeURIComponent(it.call)}` }, it.name)
    : h("span", { class: it.kind === "copy" ? "mono" : null }, it.name);
  return h("tr", null,
    h("th", { scope: "row", style: { "padding-left": `${10 + it.depth * INDENT_PX}px` } }, it.kind && h("span", { class: "soft" }, `${it.kind} `), name),
    h("td", { class: "numeric" }, milliseconds(it.ms)),
    h("td", { class: "hop-column" }, hopBar(it.at_ms / whole, it.ms / whole, kind)),
    h("td", { class: "numeric" }, milliseconds(it.at_ms)),
    h("td", { class: "numeric" }, it.wait_ms === null || it.wait_ms === undefined ? "" : milliseconds(it.wait_ms)),
    h("td", { class: "numeric" }, it.bytes_in === null || it.bytes_in === undefined ? "" : `${bytes(it.bytes_in)}, ${bytes(it.bytes_out ?? 0)}`),
    h("td", { class: "long" }, [it.problem, it.config && `config ${it.config}`, it.detail].filter(Boolean).join("; ")));
}

function choice(it) {
  const most = Math.max(1, ...it.costs.map(([, cost]) => cost));
  return h("div", { class: "choice-box" },
    h("p", null, h("code", null, it.copy), it.of > 1 ? ` was chosen of ${it.of} copies by ${it.policy}` : ` was ${it.policy}`),
    it.costs.length > 0 && h("table", { class: "costs" },
      h("caption", null, `What each copy would have cost, in ${it.unit}`),
      h("tbody", null, it.costs.map(([copy, cost]) => h("tr", { "data-chosen": copy === it.copy ? "yes" : null },
        h("th", { scope: "row" }, h("code", null, copy), copy === it.copy ? " chosen" : ""),
        h("td", null, shareBar(cost / most, number(cost))))))),
    it.left_out > 0 && h("p", { class: "soft" }, `and ${it.left_out} more copies`));
}

function logs(call) {
  const streams = Object.entries(call.logs);
  return h("section", { class: "panel" }, h("h2", null, "The copies' log of that moment"),
    streams.length === 0 && h("p", { class: "hint" }, "Its copies printed nothing from half a second before the call to 2.5 s after it."),
    streams.map(([name, lines]) => [h("h3", { class: "mono" }, name), logBlock(lines)]),
    call.silent.length > 0 && h("p", { class: "hint" }, statusMark("incomplete"), ` ${call.silent.join(", ")} did not answer.`));
}
