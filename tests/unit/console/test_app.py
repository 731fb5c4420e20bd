"""Every refusal of the console's HTTP server, and the requests that pass."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.console.console_sample import HOST, OWN, SampleConsole

from hostelry.console.security import HEADERS
from hostelry.console.sign_in import ACTS_S, IDLE_S, LINK_S, MAX_FAILURES
from hostelry.console.visits import MAX_BODY_BYTES

SCOPE = {"account": "1" * 12, "region": "us-east-1"}
SCALE = {"component": "c", "copies": 2}
UPDATE = "UpdateInferenceComponentRuntimeConfig"
FOREIGN = {**OWN, "origin": "http://evil.example"}
DEEP = b'{"a":' + b"[" * 50 + b"]" * 50 + b"}"


@pytest.fixture
def console(tmp_path: Path) -> SampleConsole:
    return SampleConsole(tmp_path)


@pytest.mark.parametrize(
    "path", ["/console", "/console/live?view=fleet", "/internal/sign-in-links"]
)
def test_only_the_platform_asks_it(console: SampleConsole, path: str) -> None:
    assert console.ask("GET", path, key={}).status_code == 403
    assert console.ask("GET", path, key={"X-Hostelry-Key": "guess"}).status_code == 403


@cases(
    "headers, body, status, text",
    case("the OpenAI key reads", OWN, {"key": "sk-read"}, 200, "token"),
    case("and may not act", OWN, {"key": "sk-read", "acts": True}, 403, "secret"),
    case("acts", OWN, {"key": "secret-act", "acts": True}, 200, '"mayAct":true'),
    case("acts unless asked", OWN, {"key": "secret-act"}, 200, '"mayAct":false'),
    case("a wrong key", OWN, {"key": "guess"}, 403, "not known"),
    case("an empty key", OWN, {"key": ""}, 403, "not known"),
    case("a key that is no text", OWN, {"key": "\ud800"}, 400, "no JSON"),
    case("a key that is a number", OWN, {"key": 7}, 400, "Send the code"),
    case("a wrong code", OWN, {"code": "guess"}, 403, "was used"),
    case("nothing", OWN, {}, 400, "Send the code"),
    case("a list", OWN, b"[]", 400, "no JSON object"),
    case("half an object", OWN, b"{", 400, "no JSON"),
    case("a deep body", OWN, DEEP, 400, "deeper"),
    case("a large body", OWN, b" " * (MAX_BODY_BYTES + 1), 413, "larger"),
    case("a form", {**OWN, "content-type": "text/plain"}, {"key": "sk-read"}, 415, "json"),
    case("another page", FOREIGN, {"key": "sk-read"}, 403, "Origin"),
    case("no page", {}, {"key": "sk-read"}, 403, "Origin"),
    case("null", {"x-forwarded-host": HOST, "origin": "null"}, {"key": "sk-read"}, 403, "Origin"),
    case(
        "another port of this host",
        {**OWN, "origin": "http://127.0.0.1:9000"},
        {"key": "sk-read"},
        403,
        "Origin",
    ),
    case("same site", {**OWN, "sec-fetch-site": "same-site"}, {"key": "sk-read"}, 403, "Origin"),
    case("behind TLS", {**OWN, "origin": f"https://{HOST}"}, {"key": "sk-read"}, 200, "token"),
)
def test_sign_in(
    console: SampleConsole, headers: Mapping[str, str], body: Any, status: int, text: str
) -> None:
    if isinstance(body, dict) and body.get("key") == "\ud800":
        body = b'{"key": "\xed\xa0\x80"}'
    answer = console.ask("POST", "/console/sign-in", headers, body)
    assert answer.status_code == status, answer.text
    assert text in answer.text
    assert ("set-cookie" in answer.headers) is (status == 200)


def test_a_link_opens_one_session_within_five_minutes(
    console: SampleConsole, tmp_path: Path
) -> None:
    def link() -> str:
        made = console.ask("POST", "/internal/sign-in-links", body={"acts": True}).json()
        return str(made["code"])

    code, late = link(), link()
    written_at = (tmp_path / "sessions.json").stat().st_mtime_ns
    assert console.ask("POST", "/console/sign-in", OWN, {"code": "guess"}).status_code == 403
    assert (tmp_path / "sessions.json").stat().st_mtime_ns == written_at
    assert console.ask("GET", f"/console/sign-in?{code}").status_code == 200  # opens nothing
    first = console.ask("POST", "/console/sign-in", OWN, {"code": code})
    assert first.json()["mayAct"] is True
    assert console.ask("POST", "/console/sign-in", OWN, {"code": code}).status_code == 403
    console.clock.advance(LINK_S)
    assert console.ask("POST", "/console/sign-in", OWN, {"code": late}).status_code == 403


def test_the_cookie_is_for_the_console_alone(console: SampleConsole) -> None:
    def cookie(**headers: str) -> set[str]:
        asked = {**OWN, **headers}
        answer = console.ask("POST", "/console/sign-in", asked, {"key": "sk-read"})
        return set(answer.headers["set-cookie"].split("; ")[1:])

    plain = {"HttpOnly", "Path=/console", "SameSite=strict", "Max-Age=604800"}
    assert cookie() == plain
    assert cookie(**{"x-forwarded-proto": "https"}) == plain | {"Secure"}


def test_wrong_keys_are_tried_so_often_and_no_more(console: SampleConsole) -> None:
    for _ in range(MAX_FAILURES):
        assert console.ask("POST", "/console/sign-in", OWN, {"key": "guess"}).status_code == 403
    refused = console.ask("POST", "/console/sign-in", OWN, {"key": "sk-read"})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "61")
    code = console.ask("POST", "/internal/sign-in-links").json()["code"]
    assert console.ask("POST", "/console/sign-in", OWN, {"code": code}).status_code == 200


READS = (
    "/console/live?view=fleet",
    "/console/api/audit",
    "/console/api/look/any",
)


@pytest.mark.parametrize("path", READS)
@cases(
    "changes, status",
    case("no cookie", {"cookie": ""}, 401),
    case("no token", {"x-hostelry-csrf": ""}, 401),
    case("a wrong token", {"x-hostelry-csrf": "guess"}, 401),
    case("a page of another site", {"sec-fetch-site": "cross-site"}, 403),
    case("a page of another port", {"sec-fetch-site": "same-site"}, 403),
)
def test_documents_need_cookie_and_token(
    console: SampleConsole, path: str, changes: Mapping[str, str], status: int
) -> None:
    assert console.ask("GET", path, {**console.shown(), **changes}).status_code == status


@cases(
    "path, status, text",
    case("no view", "/console/live", 400, "expected one of"),
    case("an unknown view", "/console/live?view=none", 400, "expected one of"),
    case("an unknown parameter", "/console/live?view=fleet&a=b", 400, "takes no a"),
    case("a long value", f"/console/live?view={'x' * 600}", 400, "512 characters"),
    case("a long name", f"/console/live?{'x' * 600}=1", 400, "512 characters"),
    case("an unknown look-up", "/console/api/look/none", 404, "no such thing"),
    case("an unknown path", "/console/api/none", 404, "no such thing"),
    case("an unknown file", "/console/static/none.js", 404, "no such file"),
    case("a path upwards", "/console/static/../app.py", 200, "<!doctype html>"),
    case("the same, encoded", "/console/static/%2e%2e/app.py", 404, "no such file"),
    case("control is away", "/console/api/audit", 502, "does not answer"),
)
def test_what_is_asked_for_wrongly(
    console: SampleConsole, path: str, status: int, text: str
) -> None:
    answer = console.ask("GET", path, console.shown())
    assert answer.status_code == status
    assert text in answer.text


@cases(
    "acts, changes, name, body, status, text",
    case("done", True, {}, "scale-component", SCALE, 200, "accepted"),
    case("a session to look", False, {}, "scale-component", SCALE, 403, "only reads"),
    case("no token", True, {"x-hostelry-csrf": ""}, "scale-component", SCALE, 401, ""),
    case("foreign", True, {"origin": "http://a"}, "scale-component", SCALE, 403, ""),
    case("an unknown act", True, {}, "format-disk", SCALE, 400, "expected one of"),
    case("no arguments", True, {}, "scale-component", {}, 400, "component"),
    case("fewer than none", True, {}, "scale-component", {**SCALE, "copies": -1}, 400, "0 to"),
    case("control's own act", True, {}, "drain", {**SCOPE, "instance": "i-1"}, 200, "accepted"),
    case("no account", True, {}, "drain", {"instance": "i-1"}, 400, "account"),
    case("by control", True, {}, "restart", {**SCOPE, "copy": "c"}, 409, "refused"),
    case("refused", True, {}, "delete-endpoint", {"endpoint": "e"}, 409, "refused"),
)
def test_acts(
    console: SampleConsole,
    acts: bool,
    changes: Mapping[str, str],
    name: str,
    body: Any,
    status: int,
    text: str,
) -> None:
    console.port.answers |= {UPDATE: {}, "/internal/audit": {}, "/internal/acts/drain": {}}
    shown = {**console.shown(acts=acts), **OWN, **changes}
    answer = console.ask("POST", f"/console/api/acts/{name}/do", shown, body)
    assert answer.status_code == status, answer.text
    assert text in answer.text
    outcomes = [it["outcome"] for path, it in console.port.sent if path == "/internal/audit"]
    # Control notes its own acts, by the session that is named to it.
    own = [it for path, it in console.port.sent if path.startswith("/internal/acts/")]
    assert all(it["who"].startswith("console session ") for it in own)
    refused = ["begun", "DeleteEndpoint is refused"]
    noted = {200: ["begun", "accepted"], 409: refused}.get(status, [])
    assert outcomes == ([] if name in ("drain", "restart") else noted)


def test_an_act_that_cannot_be_noted_is_not_done(console: SampleConsole) -> None:
    console.port.answers[UPDATE] = {}
    shown = {**console.shown(acts=True), **OWN}
    answer = console.ask("POST", "/console/api/acts/scale-component/do", shown, SCALE)
    assert answer.status_code == 503
    assert UPDATE not in console.port.asked


def test_a_plan_has_what_will_happen_and_does_nothing(console: SampleConsole) -> None:
    shown = {**console.shown(acts=True), **OWN}
    plan = console.ask("POST", "/console/api/acts/scale-component/plan", shown, SCALE).json()
    assert plan["sentence"] == "Set the copies of inference component c to 2."
    assert [it["call"] for it in plan["calls"]] == [f"sagemaker {UPDATE}"]
    assert console.port.sent == []


def test_the_plan_of_controls_own_act_has_what_control_would_do(console: SampleConsole) -> None:
    steps = [{"copy": "c-1", "text": "a new copy comes up on i-2"}]
    answer = {"summary": "1 copy is replaced.", "steps": steps}
    console.port.answers["/internal/acts/restart"] = answer
    shown = {**console.shown(acts=True), **OWN}
    body = {**SCOPE, "component": "base"}
    plan = console.ask("POST", "/console/api/acts/restart/plan", shown, body).json()
    assert plan["would"] == ["1 copy is replaced.", "c-1: a new copy comes up on i-2"]
    ((_, sent),) = console.port.sent
    assert (sent["component"], sent["dry_run"]) == ("base", True)


def test_sessions_end(console: SampleConsole) -> None:
    shown = {**console.shown(acts=True), **OWN}

    def state() -> dict[str, Any]:
        found: dict[str, Any] = console.ask("GET", "/console/api/session", shown).json()
        return found

    assert state()["mayAct"]
    console.clock.advance(ACTS_S)
    assert (state()["signedIn"], state()["mayAct"]) == (True, False)
    console.clock.advance(IDLE_S)
    assert state() == {"signedIn": False}
    shown = {**console.shown(), **OWN}
    assert console.ask("POST", "/console/api/sign-out", shown).status_code == 200
    assert state() == {"signedIn": False}


@cases(
    "path, kept",
    case("the page", "/console/fleet", "no-cache"),
    case("a script", "/console/static/main.js", "no-cache"),
    case("a document", "/console/api/session", "no-store"),
    case("a refusal", "/console/api/none", "no-store"),
    case("a path that is not there", "/elsewhere", "no-store"),
)
def test_every_answer_has_the_security_headers(
    console: SampleConsole, path: str, kept: str
) -> None:
    headers = console.ask("GET", path).headers
    assert {name: headers[name] for name in HEADERS} == dict(HEADERS)
    assert headers["cache-control"] == kept


def test_a_file_that_a_browser_has_is_not_sent_again(console: SampleConsole) -> None:
    first = console.ask("GET", "/console/static/main.js")
    again = console.ask("GET", "/console/static/main.js", {"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_console_that_was_killed_knows_its_sessions(
    console: SampleConsole, tmp_path: Path
) -> None:
    shown = console.shown()
    assert SampleConsole(tmp_path).ask("GET", "/console/api/session", shown).json()["signedIn"]
    text = (tmp_path / "sessions.json").read_text()
    assert not any(secret in text for secret in (shown["x-hostelry-csrf"], shown["cookie"][17:]))
    (tmp_path / "sessions.json").write_bytes(b"torn")
    assert not SampleConsole(tmp_path).ask("GET", "/console/api/session", shown).json()["signedIn"]
