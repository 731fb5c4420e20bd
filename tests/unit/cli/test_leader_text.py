"""Several controls in `hostelry status`."""

from typing import Any

import pytest

from hostelry.cli.status_text import leader_lines, version_lines

NOW = 10_000.0


def member(name: str, *, leads: bool = False) -> dict[str, Any]:
    return {"id": name, "address": f"http://{name}:1", "leads": leads}


def control(*members: dict[str, Any], trouble: str | None = None) -> dict[str, Any]:
    change = {"epoch": 3, "holder": "b", "at": NOW - 90.0, "reason": "the session of a ended"}
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
    assert leader_lines(found, NOW) == lines


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
