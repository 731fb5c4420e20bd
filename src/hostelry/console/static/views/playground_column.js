// A column of the playground: one model or adapter, its conversation, its times.

import { fill, h, number, setText } from "../dom.js";
import { codeBox } from "./code_box.js";
import { callEvents } from "./call_events.js";

const NEAR_PX = 60;
const MIN_TIMED = 8; // of fewer tokens a rate would say nothing

/** A column; `onChange()` is called when it begins or ends an answer. */
export function chatColumn({ context, models, name, id, onChange, onClose }) {
  const select = h("select", { id: `model-${id}`, "aria-label": `Model of column ${id}` }, groups(models));
  select.value = name;
  const close = h("button", { type: "button", class: "close", "aria-label": `Close column ${id}` }, "×");
  const times = h("p", { class: "times", role: "status" }, "");
  const log = h("div", { class: "log", tabindex: "0", role: "log", "aria-live": "off", "aria-label": `Conversation ${id}` });
  const code = codeBox(id);
  const element = h("section", { class: "column", "aria-label": `Column ${id}` },
    h("div", { class: "column-head" }, select, close), times, log, code.element);
  let messages = [];
  let connection = null;

  const column = {
    element,
    get busy() { return connection !== null; },
    get model() { return select.value; },
    alone(isAlone) { close.hidden = isAlone; },
    stop() { connection?.abort(); },
    clear() {
      column.stop();
      messages = [];
      fill(log);
      setText(times, "");
      code.update(null);
    },
    ask(text, system, settings) {
      messages.push({ role: "user", content: text });
      log.append(bubble("user", text));
      const head = system.trim() ? [{ role: "system", content: system }] : [];
      answer({ model: select.value, messages: [...head, ...messages], ...settings });
    },
  };

  async function answer(request) {
    const controller = connection = new AbortController();
    const endpoint = models.find((it) => it.name === request.model)?.endpoint ?? "";
    const target = bubble("assistant", "");
    const text = document.createTextNode("");
    target.append(text);
    log.append(target);
    log.scrollTop = log.scrollHeight;
    select.disabled = true;
    const measure = stopwatch(times);
    const shown = { content: "" };
    const painter = paint(log, text, shown);
    let why = "";
    try {
      for await (const { kind, data } of callEvents(context, "playground/chat", { endpoint, request }, controller.signal)) {
        if (kind === "request") code.update(data.code);
        else if (kind === "failed") why = failureText(data);
        else if (kind === "" && data.error) why = failureText({ text: data.error.message });
        else if (kind === "") take(data, shown, measure, painter);
      }
    } catch (error) {
      why = controller.signal.aborted ? "stopped" : String(error.message ?? error);
    }
    painter.end();
    measure.end(why);
    if (why) target.append(h("span", { class: controller.signal.aborted ? "soft" : "failure" }, shown.content ? ` (${why})` : why));
    if (shown.content) messages.push({ role: "assistant", content: shown.content });
    else messages.pop(); // what was not answered is not said again
    connection = null;
    select.disabled = false;
    onChange();
  }

  close.addEventListener("click", () => onClose(column));
  return column;
}

function take(chunk, shown, measure, painter) {
  const delta = chunk.choices?.[0]?.delta;
  const text = (delta?.reasoning_content ?? "") + (delta?.content ?? "");
  if (text) {
    shown.content += text;
    measure.token();
    painter.soon();
  }
  if (chunk.usage) measure.usage(chunk.usage.completion_tokens);
  const reason = chunk.choices?.[0]?.finish_reason;
  if (reason) measure.reason(reason);
}

/** Write the text at most once a frame, and keep the end in sight if it was. */
function paint(log, node, shown) {
  let asked = 0;
  function draw() {
    asked = 0;
    const isNear = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_PX;
    if (node.data !== shown.content) node.appendData(shown.content.slice(node.length));
    if (isNear) log.scrollTop = log.scrollHeight;
  }
  return {
    soon() { if (!asked) asked = requestAnimationFrame(draw); },
    end() {
      cancelAnimationFrame(asked);
      draw();
    },
  };
}

function stopwatch(times) {
  const began = performance.now();
  let first = null;
  let last = began;
  let pieces = 0;
  let tokens = null;
  let reason = "";
  setText(times, "waiting");
  function text() {
    const parts = [`first token ${seconds(first - began)}`];
    const generated = tokens ?? pieces;
    if (generated >= MIN_TIMED && last > first) parts.push(`${number(Math.round(((generated - 1) * 1000) / (last - first)))} tokens/s`);
    parts.push(`${tokens ?? `${pieces} pieces`}${tokens === null ? "" : " tokens"}`);
    return parts.join(" · ");
  }
  return {
    token() {
      last = performance.now();
      if (first === null) {
        first = last;
        setText(times, `first token ${seconds(first - began)}`);
      }
      pieces += 1;
    },
    usage(count) { tokens = count; },
    reason(value) { reason = value; },
    end(why) {
      const ended = why || (reason === "length" ? "at its limit" : "");
      setText(times, first === null ? ended || "no text" : `${text()}${ended ? ` · ${ended}` : ""}`);
    },
  };
}

function seconds(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

function failureText({ status, text }) {
  let said = text;
  try {
    const found = JSON.parse(text);
    said = found.error?.message ?? found.message ?? text;
  } catch { /* the text as it is */ }
  return status ? `${status}: ${said}` : said;
}

function bubble(role, text) {
  return h("div", { class: "bubble", "data-role": role }, text);
}

function groups(models) {
  const bases = models.filter((it) => !it.base);
  const orphans = models.filter((it) => it.base && !bases.some((base) => base.name === it.base));
  const option = (it, text) => h("option", { value: it.name }, it.ready === 0 && !it.base ? `${text} (no copy is ready)` : text);
  return [
    ...bases.map((base) => {
      const adapters = models.filter((it) => it.base === base.name);
      return adapters.length
        ? h("optgroup", { label: `${base.name} and its adapters` }, option(base, base.name), adapters.map((it) => option(it, it.name)))
        : option(base, base.name);
    }),
    ...orphans.map((it) => option(it, it.name)),
  ];
}
