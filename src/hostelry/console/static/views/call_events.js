// The events of a call of the playground: the page's own have a kind, the model's chunks have none.

/** Posts `body`, and yields { kind, data } as they come; ends with the call, throws why it failed. */
export async function* callEvents(context, path, body, signal) {
  const response = await context.post(`api/${path}`, body, { signal });
  if (!response.ok) {
    const found = await response.json().catch(() => ({}));
    throw new Error(found.message ?? `The console answered ${response.status}.`);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let unread = "";
  let hasEnded = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const parts = (unread + value).split(/\r?\n\r?\n/);
    unread = parts.pop();
    for (const part of parts) {
      const found = parsed(part);
      if (found?.kind === "ended") hasEnded = true;
      else if (found) yield found;
    }
  }
  if (!hasEnded) throw new Error("the connection broke off");
}

function parsed(part) {
  let kind = "";
  const lines = [];
  for (const line of part.split(/\r?\n/)) {
    if (line.startsWith("event:")) kind = line.slice(6).trim();
    else if (line.startsWith("data:")) lines.push(line.slice(line[5] === " " ? 6 : 5));
  }
  const data = lines.join("\n");
  if (!lines.length || data === "[DONE]") return null;
  try {
    return { kind, data: JSON.parse(data) };
  } catch {
    return { kind: "failed", data: { text: `no JSON: ${data.slice(0, 200)}` } };
  }
}
