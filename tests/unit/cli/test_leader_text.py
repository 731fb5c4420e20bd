"""Several controls in `hostelry status`."""

from typing import Any

import pytest

from hostelry.cli.leader_text import leader_lines

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
