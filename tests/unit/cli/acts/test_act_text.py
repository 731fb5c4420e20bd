"""Acts as text, of the question before them and of the timeline."""

from typing import Any

from hostelry.cli.acts import act_lines, act_rows, done_line
from hostelry.cli.status_text import drain_lines, restart_lines


def act(*ways: str) -> dict[str, Any]:
    return {
        "act": "restart",
        "target": "component base",
        "endpoint": "chat",
        "summary": f"{len(ways)} copies are replaced.",
        "already": False,
        "steps": [
            {
                "copy": f"c-{number}",
                "owner": "component/base",
                "instance": "i-1",
                "way": way,
                "text": "a new copy comes up",
            }
            for number, way in enumerate(ways)
        ],
    }


def test_each_copy_has_its_step() -> None:
    assert act_lines(act("beside")) == [
        "Restart component base of endpoint chat",
        "  1 copies are replaced.",
        "  c-0  component/base on i-1",
        "    a new copy comes up",
    ]


def test_what_it_costs_is_the_last_line() -> None:
    lines = act_lines(act("beside", "ended_first", "ended_first"))
    assert lines[-1].startswith("There is no room beside c-1, c-2: each ends before the new one")


def test_many_copies_are_counted() -> None:
    lines = act_lines(act(*["beside"] * 25))
    assert lines[-1] == "  ... and 5 more copies"


def test_a_repeat_is_reported() -> None:
    assert done_line(act()).startswith("Recorded: `hostelry status --endpoint chat`")
    assert done_line({**act(), "already": True}).startswith("It was asked for before")


def test_acts_of_the_log_are_rows_without_control_characters() -> None:
    entry = {
        "at": 0.0,
        "act": "drain",
        "target": "instance i-1",
        "who": "user \x1b[31mada",
        "outcome": "accepted",
    }
    head, row = act_rows("chat", [entry])
    assert head.text == "acts on chat"
    assert row.text.endswith("drain instance i-1 by user [31mada: accepted")
    assert act_rows("chat", []) == []


def test_progress_is_a_line_of_the_status() -> None:
    drain = {"since": 5.0, "copies_left": 1, "serving": 0, "reason": "its copies end"}
    assert drain_lines({"drain": drain}, 17.0, "  ") == [
        "  draining for 12s, 1 copy left: its copies end"
    ]
    restart = {"asked_at": 5.0, "failed": True, "reason": "no driver"}
    assert restart_lines({"restart": restart}, 17.0, "  ") == [
        "  restart asked for 12s ago, given up: no driver"
    ]
    assert drain_lines({"drain": None}, 0.0, "") == restart_lines({}, 0.0, "") == []
