// The page: sign-in, navigation, and the live document of the view in sight.

import { act } from "./dialog.js";
import { fill, h, setText } from "./dom.js";
import { follow } from "./live.js";
import { forget, post, request, restore, session, signIn, signOut } from "./session.js";
import { VIEWS } from "./views.js";

const BASE = "/console/";
const THEME = "hostelry-console-theme";
const THEMES = ["auto", "light", "dark"];
const STATES = { live: "Live", stale: "Not up to date", connecting: "Connecting", paused: "Paused" };

const top_ = document.getElementById("top");
const main = document.getElementById("main");
const trouble = document.getElementById("trouble");
const state = h("span", { class: "state", "data-state": "connecting" }, STATES.connecting);
let shown = null;
let link = { name: "connecting", reason: "" };
let isTroubled = false;

const context = {
  session,
  navigate,
  replace,
  act,
  post,
  async ask(path) {
    const response = await request(`api/${path}`);
    if (response.status === 401) showSignIn("Your session has ended.");
    const found = await response.json();
    if (!response.ok) throw new Error(found.message);
    return found;
  },
};

function navigate(path) {
  history.pushState(null, "", BASE + path);
  show();
}

/** As `navigate`, without a new entry in the history. */
function replace(path) {
  history.replaceState(null, "", BASE + path);
  show();
}

/** Show the view of the present address. */
function show() {
  const path = decodeURI(location.pathname.slice(BASE.length)) || "fleet";
  const view = VIEWS.find((it) => it.path.test(path));
  shown?.end();
  shown = null;
  say({});
  drawTop(view);
  if (!view) return fill(main, h("h1", null, "Nothing here"), h("p", null, `There is no view ${path}.`));
  document.title = `${view.title} · Hostelry`;
  fill(main);
  const match = view.path.exec(path);
  const mounted = view.mount(main, context, match);
  const topic = view.topic?.(match) ?? null;
  const stop = topic ? followed(topic, mounted) : () => {};
  setState(topic ? "connecting" : "live");
  state.hidden = !topic;
  shown = {
    end() {
      stop();
      mounted.unmount?.();
    },
  };
}

function followed(topic, mounted) {
  return follow(topic, {
    open: (it, signal) => request(`live?${new URLSearchParams(it)}`, { signal }),
    onDocument(found) {
      say(found.trouble ?? {});
      mounted.update(found);
    },
    onState: setState,
    onSignedOut: () => showSignIn("Your session has ended."),
  });
}

function setState(name, reason = "") {
  link = { name, reason };
  drawState();
}

/** What is shown is live, or it is older: then it has no colours, since they would speak of now. */
function drawState() {
  const name = link.name === "live" && isTroubled ? "stale" : link.name;
  if (state.dataset.state !== name) state.dataset.state = name;
  setText(state, STATES[name]);
  state.title = link.reason;
  main.dataset.stale = name === "live" ? "no" : "yes";
}

/** Say what the platform does not answer; what is shown then is older. */
function say(found) {
  const texts = [...new Set(Object.values(found))];
  isTroubled = texts.length > 0;
  trouble.hidden = !isTroubled;
  setText(trouble, isTroubled ? `Not up to date: ${texts.join(" ")}` : "");
  drawState();
}

function drawTop(current) {
  const links = VIEWS.filter((it) => it.home !== undefined).map((it) =>
    h("li", null, h("a", { href: BASE + it.home, "aria-current": it === current ? "page" : it.name === current?.within ? "true" : null }, it.title)));
  fill(top_,
    h("a", { class: "brand", href: `${BASE}fleet` }, "Hostelry"),
    session.signedIn && h("nav", { "aria-label": "Views" }, h("ul", null, links)),
    h("div", { class: "tools" },
      session.signedIn && state,
      session.signedIn && session.mayAct && h("span", { class: "badge", title: "This session may scale and delete." }, "may act"),
      themeButton(),
      session.signedIn && h("button", { type: "button", onclick: leave }, "Sign out")));
}

async function leave() {
  await signOut();
  showSignIn("");
}

function themeButton() {
  const name = localStorage.getItem(THEME) ?? "auto";
  const button = h("button", { type: "button", title: "Light, dark, or as the system" }, `Theme: ${name}`);
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(localStorage.getItem(THEME) ?? "auto") + 1) % THEMES.length];
    localStorage.setItem(THEME, next);
    applyTheme();
    setText(button, `Theme: ${next}`);
  });
  return button;
}

function applyTheme() {
  const name = localStorage.getItem(THEME) ?? "auto";
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}

function showSignIn(why) {
  shown?.end();
  shown = null;
  forget();
  say({});
  setState("live");
  drawTop(null);
  document.title = "Sign in · Hostelry";
  const key = h("input", { type: "password", id: "key", autocomplete: "off", required: true, spellcheck: "false" });
  const acts = h("input", { type: "checkbox", id: "acts" });
  const failure = h("p", { class: "failure", role: "alert" }, why);
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  const form = h("form", null,
    h("label", { for: "key" }, "Key"), key,
    h("p", { class: "hint" }, "The platform's OpenAI key opens a session that reads; its secret access key may also act. ",
      h("code", null, "hostelry env"), " prints both."),
    h("p", null, acts, " ", h("label", { for: "acts" }, "May scale and delete, with the secret access key")),
    button, failure);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    fill(failure, await signIn({ key: key.value, acts: acts.checked }) ?? "");
    button.disabled = false;
    if (session.signedIn) begin();
  });
  fill(main, h("section", { class: "sign-in" },
    h("h1", null, "Sign in"),
    h("p", null, "On the platform's machine, ", h("code", null, "hostelry console"), " prints a link that signs this browser in."),
    form));
}

function begin() {
  if (location.pathname === `${BASE}sign-in`) history.replaceState(null, "", `${BASE}fleet`);
  show();
}

async function start() {
  applyTheme();
  const code = location.pathname === `${BASE}sign-in` ? location.hash.slice(1) : "";
  if (code) {
    history.replaceState(null, "", `${BASE}sign-in`); // the address bar and the history keep no code
    const failure = await signIn({ code });
    return failure ? showSignIn(failure) : begin();
  }
  drawTop(null);
  try {
    if (await restore()) begin();
    else showSignIn("");
  } catch {
    fill(main, h("p", { class: "sign-in", role: "alert" }, "The console does not answer; trying again."));
    setTimeout(start, 2000);
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !url.pathname.startsWith(BASE) || url.hash || link.target) return;
  event.preventDefault();
  history.pushState(null, "", url.pathname + url.search);
  show();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener("popstate", () => session.signedIn && show());
start();
