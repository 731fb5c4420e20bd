// Live documents: a stream of events a tab, patches applied to the document, and connected again.

const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 5000;

/** `document` after a merge patch (RFC 7386); objects that do not change stay the same objects. */
export function patched(document, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const result = document !== null && typeof document === "object" && !Array.isArray(document) ? { ...document } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = patched(result[key], value);
  }
  return result;
}

/** Splits a stream of server-sent events; `take(text)` returns the events that are whole. */
export function eventReader() {
  let unread = "";
  return (text) => {
    const parts = (unread + text).split("\n\n");
    unread = parts.pop();
    return parts.map((part) => {
      const event = { kind: "", data: "" };
      for (const line of part.split("\n")) {
        if (line.startsWith("event: ")) event.kind = line.slice(7);
        else if (line.startsWith("data: ")) event.data += line.slice(6);
      }
      return event;
    }).filter((it) => it.kind);
  };
}

/**
 * Follow a topic while the tab is in sight. `open(topic, signal)` returns a Response.
 * Calls `onDocument(document)`, `onState("live" | "connecting" | "paused", reason)`, `onSignedOut()`.
 */
export function follow(topic, { open, onDocument, onState, onSignedOut }) {
  let ended = false;
  let connection = null;
  let document_ = {};

  async function once(signal) {
    const response = await open(topic, signal);
    if (response.status === 401) return "signed-out";
    if (!response.ok) throw new Error((await response.json()).message);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const events = eventReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return "ended";
      for (const { kind, data } of events(value)) {
        if (kind === "signed-out") return "signed-out";
        const given = JSON.parse(data);
        document_ = kind === "snapshot" ? given : patched(document_, given);
        onState("live");
        onDocument(document_);
      }
    }
  }

  async function run(signal) {
    let pauseMs = FIRST_PAUSE_MS;
    while (!signal.aborted) {
      const began = performance.now();
      onState("connecting");
      let reason = "the stream ended";
      try {
        if (await once(signal) === "signed-out") return onSignedOut();
      } catch (error) {
        reason = String(error.message ?? error);
      }
      if (signal.aborted) return;
      if (performance.now() - began > 2 * MAX_PAUSE_MS) pauseMs = FIRST_PAUSE_MS;
      onState("connecting", reason);
      await new Promise((resolve) => setTimeout(resolve, pauseMs * (0.5 + Math.random() / 2)));
      pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS);
    }
  }

  function look() {
    connection?.abort();
    connection = null;
    if (ended) return;
    if (document.hidden) return onState("paused");
    connection = new AbortController();
    run(connection.signal);
  }
  document.addEventListener("visibilitychange", look);
  look();
  return () => {
    ended = true;
    document.removeEventListener("visibilitychange", look);
    look();
  };
}
