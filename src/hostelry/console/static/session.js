// The session: a cookie that no script reads, and a token that only this address and port knows.

const TOKEN = "hostelry-console-token";

export const session = { signedIn: false, mayAct: false };

function token() {
  return localStorage.getItem(TOKEN) ?? "";
}

/** Ask the console, with the token. */
export function request(path, options = {}) {
  const headers = { ...options.headers, "X-Hostelry-Csrf": token() };
  return fetch(`/console/${path}`, { ...options, headers, cache: "no-store", redirect: "error" });
}

/** Post JSON, with the token. */
export function post(path, body, options = {}) {
  const headers = { "Content-Type": "application/json" };
  return request(path, { ...options, method: "POST", headers, body: JSON.stringify(body ?? {}) });
}

/** Whether this browser is signed in; `session` says what it may do. */
export async function restore() {
  if (!token()) return false;
  const response = await request("api/session");
  const found = response.ok ? await response.json() : {};
  Object.assign(session, { signedIn: found.signedIn === true, mayAct: found.mayAct === true });
  return session.signedIn;
}

/** Sign in by `{ code }` or `{ key, acts }`; returns why not, or null. */
export async function signIn(shown) {
  const response = await post("sign-in", shown);
  const found = await response.json().catch(() => ({}));
  if (!response.ok) return found.message ?? `The console answered ${response.status}.`;
  localStorage.setItem(TOKEN, found.token);
  Object.assign(session, { signedIn: true, mayAct: found.mayAct === true });
  return null;
}

/** End the session, here and at the console. */
export async function signOut() {
  await post("api/sign-out").catch(() => null);
  forget();
}

/** Forget the token of a session that has ended. */
export function forget() {
  localStorage.removeItem(TOKEN);
  Object.assign(session, { signedIn: false, mayAct: false });
}
