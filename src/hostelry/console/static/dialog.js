// The dialog before an act: it says what will happen, by which calls, and asks.

import { fill, h } from "./dom.js";
import { post, session } from "./session.js";

export const ONLY_READS = "This session only reads. `hostelry console --acts` opens one that may act.";

/**
 * Confirm and do an act. `input` asks for a number: { name, label, value }.
 * Returns whether it was done.
 */
export function act(name, args, input = null) {
  if (!session.mayAct) return notice(ONLY_READS);
  const given = { ...args };
  const what = h("p", { class: "act-what" });
  const warning = h("p", { class: "act-warning" });
  const would = h("ul", { class: "act-would" });
  const calls = h("pre", { class: "act-calls", tabindex: "0", "aria-label": "The calls" });
  const failure = h("p", { class: "act-failure", role: "alert" });
  const confirm = h("button", { type: "submit", class: "danger", disabled: true }, "Do it");
  const cancel = h("button", { type: "button" }, "Cancel");
  const number = input && h("input", { type: "number", min: 0, max: 1000, value: String(input.value), required: true });
  const dialog = h("dialog", { "aria-labelledby": "act-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "act-title" }, "Confirm"),
      number && h("label", { class: "act-input" }, input.label, number),
      what, warning, would, calls, failure,
      h("div", { class: "buttons" }, cancel, confirm)));
  let asked = 0;
  async function plan() {
    const turn = (asked += 1);
    confirm.disabled = true;
    if (number) given[input.name] = Number.parseInt(number.value, 10);
    const response = await post(`api/acts/${name}/plan`, given);
    const found = await response.json();
    if (turn !== asked) return;
    fill(what, found.sentence ?? "");
    fill(warning, found.warning ?? "");
    fill(would, (found.would ?? []).filter(Boolean).map((it) => h("li", null, it)));
    fill(failure, response.ok ? "" : found.message);
    fill(calls, (found.calls ?? []).map((it) => `${it.call}\n${JSON.stringify(it.parameters, null, 2)}`).join("\n"));
    confirm.disabled = !response.ok;
  }
  return new Promise((resolve) => {
    let done = false;
    number?.addEventListener("input", plan);
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(done);
    });
    dialog.firstChild.addEventListener("submit", async (event) => {
      event.preventDefault();
      confirm.disabled = true;
      const response = await post(`api/acts/${name}/do`, given);
      if (response.ok) {
        done = true;
        dialog.close();
      } else {
        fill(failure, (await response.json()).message);
        confirm.disabled = false;
      }
    });
    document.body.append(dialog);
    dialog.showModal();
    plan();
  });
}

function notice(text) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": "Not possible" },
      h("form", { method: "dialog" }, h("p", null, text), h("div", { class: "buttons" }, h("button", null, "Close"))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(false);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
