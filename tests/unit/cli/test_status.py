from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.reasons_once import reasons_once
from hostelry.cli.status import only_endpoint, state_lines
from hostelry.cli.status_text import endpoint_lines, leader_lines, version_lines
from hostelry.domain.trouble import find_cause

ENDPOINTS = [{"name": it, "status": "InService"} for it in ("chat", "embed")]
LED_AT = 10_000.0
NOW = 1_000.0
START = "CannotStartContainerError. Please ensure the model container for inference component"


def test_one_endpoint_of_several() -> None:
    assert only_endpoint(ENDPOINTS, "embed") == [{"name": "embed", "status": "InService"}]


@cases(
    "endpoints, names",
    case("another name", ENDPOINTS, "chat, embed"),
    case("no endpoint at all", [], "none"),
)
def test_an_unknown_endpoint_is_refused_with_the_known_ones(
    endpoints: list[dict[str, Any]], names: str
) -> None:
    with pytest.raises(TerminalError, match=f"there is no endpoint chap. There are: {names}"):
        only_endpoint(endpoints, "chap")


@cases(
    "state, running, text",
    case("nothing runs", None, False, "Not running: start it"),
    case("control is silent", None, True, "Control does not answer"),
    case("nothing was created", {"endpoints": []}, True, "No endpoints."),
    case("endpoints", {"endpoints": ENDPOINTS}, True, "endpoint chat  InService"),
)
def test_controls_state_in_words(state: dict[str, Any] | None, running: bool, text: str) -> None:
    assert text in state_lines(state, running=running, alone=False)[0]


def member(name: str, *, leads: bool = False) -> dict[str, Any]:
    return {"id": name, "address": f"http://{name}:1", "leads": leads}


def control(*members: dict[str, Any], trouble: str | None = None) -> dict[str, Any]:
    change = {
        "epoch": 3,
        "holder": "b",
        "at": LED_AT - 90.0,
        "reason": "the session of a ended",
    }
    return {"epoch": 3, "members": list(members), "changes": [change], "trouble": trouble}


@cases(
    "found, lines",
    case("one control shows nothing", None, []),
    case(
        "the leader comes first, with the reason of the change",
        control(member("a"), member("b", leads=True)),
        [
            "leader   b  http://b:1  epoch 3, for 1m30s: the session of a ended",
            "standby  a  http://a:1",
        ],
    ),
    case(
        "a leader without a standby",
        control(member("b", leads=True)) | {"changes": []},
        [
            "leader   b  http://b:1  epoch 3",
            "standby  none: no control follows where the leader ends",
        ],
    ),
    case(
        "an election",
        control(member("a")),
        ["leader   none  (one is being elected)", "standby  a  http://a:1"],
    ),
    case(
        "a database that does not answer",
        control(trouble="the store is unavailable"),
        [
            "leader   none  (the store is unavailable)",
            "standby  none: no control follows where the leader ends",
        ],
    ),
)
def test_status_shows_each_control(found: dict[str, Any] | None, lines: list[str]) -> None:
    assert leader_lines(found, LED_AT) == lines


def state(version: str, control: str, gateways: str) -> dict[str, Any]:
    members = [member("a", leads=True) | {"version": version}, member("b") | {"version": control}]
    hosts = [{"host_id": "h", "address": "http://h:1", "version": gateways}]
    return {"version": version, "control": {"members": members}, "gateway_hosts": hosts}


@cases(
    "found, lines",
    case("one version shows nothing", state("0.1.0", "0.1.0", "0.1.0"), []),
    case("an older control, which tells none", {"control": None}, []),
    case(
        "an upgrade under way",
        state("0.1.0", "0.2.0", "0.1.0"),
        ["version 0.1.0  control a, gateways h", "version 0.2.0  control b"],
    ),
    case(
        "gateways that tell none, beside the only control",
        state("0.1.0", "0.1.0", "") | {"control": None},
        ["version 0.1.0  control that leads", "version unknown  gateways h"],
    ),
    case(
        "hosts that are too far apart",
        state("0.3.0", "0.3.0", "0.1.0"),
        [
            "version 0.1.0  gateways h",
            "version 0.3.0  control a, control b",
            "warning: gateways h is Hostelry 0.1.0 and control that leads is 0.3.0: on one"
            " platform versions may be one minor number apart, so upgrade by one at a time",
        ],
    ),
)
def test_status_shows_versions_where_they_differ(found: dict[str, Any], lines: list[str]) -> None:
    assert version_lines(found) == lines


@cases(
    "one, other, alike",
    case(
        "names differ",
        f"{START} a starts correctly. The model server exited with code 1.",
        f"{START} b starts correctly. The model server exited with code 1.",
        True,
    ),
    case(
        "ids, counts and pauses differ",
        "copy 01hx3k2 on i-0aa after 3 restarts: no GPU. It is started again in 2 s.",
        "copy 01hx9zz on i-1bb after 12 restarts: no GPU. It is started again at once.",
        True,
    ),
    case("sizes differ", "It holds 1.5 GiB of 1 GiB.", "It holds 700.25 GiB of 2 GiB.", True),
    case("exit codes differ", "exited with code 1.", "exited with code 137.", False),
    case("signals differ", "ended by signal 9.", "ended by signal 11.", False),
    case("statuses", "answered with HTTP 404", "answered with HTTP 403", False),
    case("errors of the system differ", "[Errno 28] no", "[Errno 13] no", False),
    case(
        "of the log the last line counts, whenever it was said",
        "It ended. Last log lines: 12:00:01 loading\n12:00:02 no module named x",
        "It ended. Last log lines: 13:07:55 no module named x",
        True,
    ),
    case(
        "the last lines of their logs differ",
        "It ended. Last log lines: no module named x",
        "It ended. Last log lines: no module named y",
        False,
    ),
    case("other words", "memory", "disk", False),
)
def test_what_is_the_same_cause(one: str, other: str, alike: bool) -> None:
    assert (find_cause(one, ("a",)) == find_cause(other, ("b",))) is alike


def test_a_name_within_a_word_is_no_name() -> None:
    assert find_cause("a-b cannot a", ("a",)) == "a-b cannot #"


def test_of_a_copy_the_model_servers_own_last_line_decides() -> None:
    tails = ["no such file\n[agent] port 71", "other lines\nno such file\n[agent] port 72"]
    assert len({find_cause("It ended.", (), it) for it in tails}) == 1
    assert find_cause("It ended.", (), "no such file") != find_cause("It ended.", (), "no memory")


def failing(name: str, reason: str, tail: str = "") -> dict[str, Any]:
    """An endpoint with one component and its one copy, both of which fail for a reason."""
    copy = {"id": f"copy-{name}", "owner": f"component/{name}", "reason": reason, "log_tail": tail}
    component = {"name": name, "status": "Failed", "failure_reason": reason}
    return {"name": f"endpoint-{name}", "status": "Failed", "components": [component]} | {
        "copies": [{**copy, "instance": "i", "phase": "failed", "adapters": []}]
    }


def test_a_reason_is_printed_once_and_then_named() -> None:
    endpoints = [failing(it, f"{START} {it} has no GPU.", "log\nend") for it in ("a", "b", "c")]
    endpoints.append(failing("d", "another"))
    lines = [it.strip() for it in endpoint_lines(reasons_once(endpoints), NOW)]
    assert lines.count("the same reason as component a") == 2
    assert lines.count("the same reason as copy copy-a") == 2
    assert sum("has no GPU" in it for it in lines) == 2, "of the component and of the copy"
    assert lines.count("| end") == 1
    assert lines.count("another") == 2


def test_an_adapter_that_fails_on_each_copy_like_its_component_is_printed_once() -> None:
    adapter = {"id": "pirate@1", "phase": "failed", "reason": "pirate@1: rank 512 is too large"}
    endpoint = {
        "name": "e",
        "components": [
            {"name": "pirate", "base": "chat", "failure_reason": "pirate@1: rank 512 is too large"}
        ],
        "copies": [{"id": it, "adapters": [adapter]} for it in ("c-1", "c-2")],
    }
    (shown,) = reasons_once([endpoint])
    reasons = [it["reason"] for copy in shown["copies"] for it in copy["adapters"]]
    assert reasons == ["the same reason as component pirate"] * 2


def test_the_account_itself_keeps_every_reason() -> None:
    endpoints = [failing(it, "no GPU") for it in ("a", "b")]
    reasons_once(endpoints)
    assert [it["components"][0]["failure_reason"] for it in endpoints] == ["no GPU", "no GPU"]
