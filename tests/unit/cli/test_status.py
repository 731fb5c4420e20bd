from typing import Any

import pytest

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


@pytest.mark.parametrize(
    ("endpoints", "names"),
    [
        pytest.param(ENDPOINTS, "chat, embed", id="another name"),
        pytest.param([], "none", id="no endpoint at all"),
    ],
)
def test_an_unknown_endpoint_is_refused_with_the_known_ones(
    endpoints: list[dict[str, Any]], names: str
) -> None:
    with pytest.raises(TerminalError, match=f"there is no endpoint chap. There are: {names}"):
        only_endpoint(endpoints, "chap")


@pytest.mark.parametrize(
    ("state", "running", "text"),
    [
        pytest.param(None, False, "Not running: start it", id="nothing runs"),
        pytest.param(None, True, "Control does not answer", id="control is silent"),
        pytest.param({"endpoints": []}, True, "No endpoints.", id="nothing was created"),
        pytest.param({"endpoints": ENDPOINTS}, True, "endpoint chat  InService", id="endpoints"),
    ],
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


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        pytest.param(None, [], id="one control shows nothing"),
        pytest.param(
            control(member("a"), member("b", leads=True)),
            [
                "leader   b  http://b:1  epoch 3, for 1m30s: the session of a ended",
                "standby  a  http://a:1",
            ],
            id="the leader comes first, with the reason of the change",
        ),
        pytest.param(
            control(member("b", leads=True)) | {"changes": []},
            [
                "leader   b  http://b:1  epoch 3",
                "standby  none: no control follows where the leader ends",
            ],
            id="a leader without a standby",
        ),
        pytest.param(
            control(member("a")),
            ["leader   none  (one is being elected)", "standby  a  http://a:1"],
            id="an election",
        ),
        pytest.param(
            control(trouble="the store is unavailable"),
            [
                "leader   none  (the store is unavailable)",
                "standby  none: no control follows where the leader ends",
            ],
            id="a database that does not answer",
        ),
    ],
)
def test_status_shows_each_control(found: dict[str, Any] | None, lines: list[str]) -> None:
    assert leader_lines(found, LED_AT) == lines


def state(version: str, control: str, gateways: str) -> dict[str, Any]:
    members = [member("a", leads=True) | {"version": version}, member("b") | {"version": control}]
    hosts = [{"host_id": "h", "address": "http://h:1", "version": gateways}]
    return {"version": version, "control": {"members": members}, "gateway_hosts": hosts}


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        pytest.param(state("0.1.0", "0.1.0", "0.1.0"), [], id="one version shows nothing"),
        pytest.param({"control": None}, [], id="an older control, which tells none"),
        pytest.param(
            state("0.1.0", "0.2.0", "0.1.0"),
            ["version 0.1.0  control a, gateways h", "version 0.2.0  control b"],
            id="an upgrade under way",
        ),
        pytest.param(
            state("0.1.0", "0.1.0", "") | {"control": None},
            ["version 0.1.0  control that leads", "version unknown  gateways h"],
            id="gateways that tell none, beside the only control",
        ),
        pytest.param(
            state("0.3.0", "0.3.0", "0.1.0"),
            [
                "version 0.1.0  gateways h",
                "version 0.3.0  control a, control b",
                "warning: gateways h is Hostelry 0.1.0 and control that leads is 0.3.0: on one"
                " platform versions may be one minor number apart, so upgrade by one at a time",
            ],
            id="hosts that are too far apart",
        ),
    ],
)
def test_status_shows_versions_where_they_differ(found: dict[str, Any], lines: list[str]) -> None:
    assert version_lines(found) == lines


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        pytest.param(
            f"{START} a starts correctly. The model server exited with code 1.",
            f"{START} b starts correctly. The model server exited with code 1.",
            True,
            id="names differ",
        ),
        pytest.param(
            "copy 01hx3k2 on i-0aa after 3 restarts: no GPU. It is started again in 2 s.",
            "copy 01hx9zz on i-1bb after 12 restarts: no GPU. It is started again at once.",
            True,
            id="ids, counts and pauses differ",
        ),
        pytest.param(
            "It holds 1.5 GiB of 1 GiB.", "It holds 700.25 GiB of 2 GiB.", True, id="sizes differ"
        ),
        pytest.param("exited with code 1.", "exited with code 137.", False, id="exit codes differ"),
        pytest.param("ended by signal 9.", "ended by signal 11.", False, id="signals differ"),
        pytest.param("answered with HTTP 404", "answered with HTTP 403", False, id="statuses"),
        pytest.param("[Errno 28] no", "[Errno 13] no", False, id="errors of the system differ"),
        pytest.param(
            "It ended. Last log lines: 12:00:01 loading\n12:00:02 no module named x",
            "It ended. Last log lines: 13:07:55 no module named x",
            True,
            id="of the log the last line counts, whenever it was said",
        ),
        pytest.param(
            "It ended. Last log lines: no module named x",
            "It ended. Last log lines: no module named y",
            False,
            id="the last lines of their logs differ",
        ),
        pytest.param("memory", "disk", False, id="other words"),
    ],
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
