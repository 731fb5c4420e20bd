// A request as code, by its client, to copy.

import { fill, h, setText } from "../dom.js";

/** The box; `update(code)` takes { curl: text, ... }, or null for none. */
export function codeBox(id) {
  const buttons = h("div", { class: "tabs", role: "group", "aria-label": "Client" });
  const text = h("pre", { class: "code", tabindex: "0", "aria-label": "The request as code" });
  const copied = h("span", { class: "soft", role: "status" });
  const copy = h("button", { type: "button" }, "Copy");
  const element = h("details", { class: "code-box", hidden: true, id: `code-${id}` }, h("summary", null, "This request as code"),
    h("div", { class: "code-head" }, buttons, copy, copied), text);
  let code = {};
  let chosen = "";
  function draw() {
    if (!(chosen in code)) chosen = Object.keys(code)[0] ?? "";
    fill(buttons, Object.keys(code).map((it) =>
      h("button", { type: "button", "aria-pressed": String(it === chosen), onclick: () => { chosen = it; draw(); } }, it)));
    setText(text, code[chosen] ?? "");
    setText(copied, "");
  }
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code[chosen]);
      setText(copied, "copied");
    } catch {
      getSelection().selectAllChildren(text);
      setText(copied, "selected: copy it with the keyboard");
    }
  });
  return {
    element,
    update(next) {
      element.hidden = !next;
      code = next ?? {};
      draw();
    },
  };
}
