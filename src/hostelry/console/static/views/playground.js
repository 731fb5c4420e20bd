// Playground: chats with several models and adapters side by side, and invocations of any endpoint.

import { fill, h, keyed, setText } from "../dom.js";
import { chatColumn } from "./playground_column.js";
import { invokePane } from "./playground_invoke.js";

const MAX_COLUMNS = 6;
const FIRST_COLUMNS = 1;
const SETTINGS = [
  { name: "max_tokens", label: "Tokens at most", value: "256", min: 1, step: 1 },
  { name: "temperature", label: "Temperature", value: "0", min: 0, max: 2, step: 0.1 },
  { name: "top_p", label: "Top p", value: "", min: 0, max: 1, step: 0.05 },
  { name: "top_k", label: "Top k", value: "", min: -1, step: 1 },
  { name: "repetition_penalty", label: "Repetition penalty", value: "", min: 0, step: 0.05 },
  { name: "seed", label: "Seed", value: "", min: 0, step: 1 },
];

export const view = {
  name: "playground",
  title: "Playground",
  home: "playground",
  path: /^playground(?:\/(.+))?$/,
  topic: () => null,
  mount(root, context, [, wanted]) {
    const status = h("p", { class: "hint", role: "status" }, "Asking what is there …");
    const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Kind of request" });
    const host = h("div");
    root.append(h("div", { class: "title-line" }, h("h1", null, "Playground"), tabs), status, host);
    let ended = false;
    let panes = {};

    async function start() {
      let found;
      try {
        found = await context.ask("playground");
      } catch (error) {
        if (!ended) fill(status, `${error.message} `, h("button", { type: "button", onclick: start }, "Try again"));
        return;
      }
      if (ended) return;
      status.hidden = true;
      panes = { chat: chatPane(context, found, wanted), invoke: invokePane(context, found, wanted) };
      const titles = { chat: "Chat", invoke: "Invoke" };
      fill(tabs, Object.keys(panes).map((name) =>
        h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `pane-${name}`, onclick: () => show(name) }, titles[name])));
      fill(host, Object.entries(panes).map(([name, pane]) =>
        h("div", { role: "tabpanel", id: `pane-${name}`, "aria-labelledby": `tab-${name}` }, pane.element)));
      const isChat = wanted ? found.chats[wanted] : Object.keys(found.chats).length;
      show(isChat ? "chat" : "invoke");
    }

    function show(name) {
      for (const tab of tabs.children) tab.setAttribute("aria-selected", tab.id === `tab-${name}`);
      for (const pane of host.children) pane.hidden = pane.id !== `pane-${name}`;
    }

    start();
    return {
      update() {},
      unmount() {
        ended = true;
        for (const pane of Object.values(panes)) pane.stop();
      },
    };
  },
};

function chatPane(context, found, wanted) {
  const models = Object.entries(found.chats).map(([name, it]) => ({ name, ...it }));
  const system = h("textarea", { id: "system", rows: "3", placeholder: "none", spellcheck: "false" });
  const inputs = Object.fromEntries(SETTINGS.map((it) => [it.name, h("input", {
    type: "number", id: `set-${it.name}`, value: it.value, min: it.min, max: it.max, step: it.step, placeholder: "the model's",
  })]));
  const stopAt = h("input", { type: "text", id: "set-stop", placeholder: "none", spellcheck: "false" });
  const more = h("textarea", { id: "set-more", rows: "2", class: "mono", placeholder: '{"min_p": 0.1}', spellcheck: "false" });
  const prompt = h("textarea", { id: "prompt", rows: "2", placeholder: "Say something to every column", "aria-label": "Message" });
  const send = h("button", { type: "submit", class: "primary" }, "Send");
  const stop = h("button", { type: "button", disabled: true }, "Stop");
  const clear = h("button", { type: "button" }, "Clear");
  const add = h("button", { type: "button" }, "Add a column");
  const grid = h("div", { class: "columns" });
  const failure = h("p", { class: "failure", role: "alert" });
  const columns = [];
  let number = 0;

  function settings() {
    const chosen = {};
    for (const [name, input] of Object.entries(inputs)) if (input.value !== "") chosen[name] = Number(input.value);
    if (stopAt.value) chosen.stop = [stopAt.value];
    return { ...chosen, ...(moreFields() ?? {}) };
  }

  /** The further fields; null where the text is no JSON object. */
  function moreFields() {
    if (!more.value.trim()) return {};
    try {
      const found = JSON.parse(more.value);
      return typeof found === "object" && !Array.isArray(found) ? found : null;
    } catch {
      return null;
    }
  }

  function addColumn(name) {
    number += 1;
    columns.push(chatColumn({ context, models, name, id: number, onChange: changed, onClose: closeColumn }));
    changed();
  }

  function closeColumn(column) {
    column.stop();
    columns.splice(columns.indexOf(column), 1);
    changed();
  }

  function changed() {
    const busy = columns.some((it) => it.busy);
    stop.disabled = !busy;
    send.disabled = busy;
    add.disabled = columns.length >= MAX_COLUMNS || !models.length;
    for (const it of columns) it.alone(columns.length === 1);
    keyed(grid, columns, (it) => it, (it) => it.element);
  }

  function ask(event) {
    event.preventDefault();
    const text = prompt.value;
    if (!text.trim() || columns.some((it) => it.busy)) return;
    more.setCustomValidity(moreFields() ? "" : "No JSON object.");
    const bad = [...Object.values(inputs), more].find((it) => !it.checkValidity());
    if (bad) return bad.reportValidity();
    prompt.value = "";
    for (const it of columns) it.ask(text, system.value, settings());
    changed();
  }

  const form = h("form", { class: "composer", onsubmit: ask }, prompt, h("div", { class: "buttons" }, send, stop, clear, add));
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) form.requestSubmit();
    if (event.key === "Enter" && !event.shiftKey) event.preventDefault();
  });
  stop.addEventListener("click", () => columns.forEach((it) => it.stop()));
  clear.addEventListener("click", () => columns.forEach((it) => it.clear()));
  add.addEventListener("click", () => {
    const used = new Set(columns.map((it) => it.model));
    addColumn((models.find((it) => !used.has(it.name)) ?? models[0]).name);
  });
  const first = found.chats[wanted] ? wanted : models.find((it) => !it.base)?.name ?? models[0]?.name;
  for (let at = 0; at < FIRST_COLUMNS && first; at += 1) addColumn(first);
  changed();
  if (!models.length) setText(failure, "No LLM is in service. `hostelry deploy` brings one; other models are under Invoke.");
  const fields = SETTINGS.map((it) => h("div", { class: "field" }, h("label", { for: `set-${it.name}` }, it.label), inputs[it.name]));
  const element = h("div", { class: "playground" },
    h("details", { class: "settings", open: innerWidth > 900 }, h("summary", null, "Settings"),
      h("div", { class: "field" }, h("label", { for: "system" }, "System prompt"), system), fields,
      h("div", { class: "field" }, h("label", { for: "set-stop" }, "Stop at"), stopAt),
      h("div", { class: "field" }, h("label", { for: "set-more" }, "More fields, as JSON"), more)),
    h("div", { class: "chat" }, failure, grid, form));
  return { element, stop: () => columns.forEach((it) => it.stop()) };
}
