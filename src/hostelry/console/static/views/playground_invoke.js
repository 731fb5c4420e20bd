// An invocation of any endpoint or component: a body with its media type, and the raw answer.

import { fill, h, setText } from "../dom.js";
import { callEvents } from "./call_events.js";
import { codeBox } from "./code_box.js";

const TYPES = ["application/json", "text/csv", "application/jsonlines", "text/plain"];

/** The pane. */
export function invokePane(context, found, wanted) {
  const names = Object.keys(found.invocations);
  const target = h("select", { id: "target" }, names.map((it) => h("option", { value: it }, it)));
  const chosen = names.find((it) => it === wanted || found.invocations[it].component === wanted);
  if (chosen) target.value = chosen;
  const type = h("input", { id: "content-type", value: TYPES[0], list: "content-types", spellcheck: "false" });
  const accept = h("input", { id: "accept", value: "", placeholder: "any", list: "content-types", spellcheck: "false" });
  const model = h("input", { id: "target-model", value: "", placeholder: "name.tar.gz", spellcheck: "false" });
  const modelField = h("div", { class: "field" }, h("label", { for: "target-model" }, "Target model"), model);
  const body = h("textarea", { id: "body", rows: "12", class: "mono", spellcheck: "false", value: '{"instances": [[1.0, 2.0]]}' });
  const send = h("button", { type: "submit", class: "primary", disabled: !names.length }, "Send");
  const stop = h("button", { type: "button", disabled: true }, "Stop");
  const status = h("p", { class: "times", role: "status" });
  const answer = h("pre", { class: "code answer", tabindex: "0", "aria-label": "The answer" });
  const code = codeBox("invoke");
  let connection = null;

  function retarget() {
    modelField.hidden = !found.invocations[target.value]?.many;
  }

  async function ask(event) {
    event.preventDefault();
    const it = found.invocations[target.value];
    const parameters = {
      EndpointName: it.endpoint, InferenceComponentName: it.component ?? "", ContentType: type.value.trim(),
      Accept: accept.value.trim(), TargetModel: modelField.hidden ? "" : model.value.trim(),
    };
    const controller = connection = new AbortController();
    send.disabled = true;
    stop.disabled = false;
    setText(status, "waiting");
    fill(answer);
    const began = performance.now();
    const took = () => `${((performance.now() - began) / 1000).toFixed(2)} s`;
    try {
      for await (const { kind, data } of callEvents(context, "playground/invoke", { parameters, body: body.value }, controller.signal)) {
        if (kind === "request") code.update(data.code);
        else if (kind === "failed") setText(status, data.text);
        else if (kind === "answer") {
          setText(status, `${data.status} · ${data.type || "no media type"} · ${took()}${data.whole ? "" : " · cut off at 1 MiB"}`);
          setText(answer, pretty(data));
        }
      }
    } catch (error) {
      setText(status, controller.signal.aborted ? "stopped" : String(error.message ?? error));
    }
    connection = null;
    send.disabled = false;
    stop.disabled = true;
  }

  target.addEventListener("change", retarget);
  stop.addEventListener("click", () => connection?.abort());
  retarget();
  const element = h("form", { class: "invoke", onsubmit: ask },
    h("datalist", { id: "content-types" }, TYPES.map((it) => h("option", { value: it }))),
    h("div", { class: "invoke-request" },
      h("div", { class: "fields" },
        h("div", { class: "field" }, h("label", { for: "target" }, "Endpoint / component"), target),
        h("div", { class: "field" }, h("label", { for: "content-type" }, "Content type"), type),
        h("div", { class: "field" }, h("label", { for: "accept" }, "Accept"), accept), modelField),
      h("div", { class: "field" }, h("label", { for: "body" }, "Body"), body),
      h("div", { class: "buttons" }, send, stop)),
    h("div", { class: "invoke-answer" }, h("h2", null, "Answer"), status, answer, code.element));
  if (!names.length) setText(status, "There is no endpoint yet.");
  return { element, stop: () => connection?.abort() };
}

function pretty({ type, text, whole }) {
  if (!whole || !type.includes("json")) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
