"""The text of `hostelry scaling`, from control's answers."""

import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases import case, cases
from typer.testing import CliRunner

from hostelry.base.errors import TerminalError
from hostelry.cli.scaling import (
    activity_lines,
    draw,
    explained_lines,
    parse_seconds,
    policy_lines,
    scaling,
    status_lines,
    tag_value,
)
from hostelry.cli.timeline import chart, clock_text, spread, update_rows
from hostelry.home.home import (
    Home,
    UpConfig,
    load_config,
    new_credentials,
    save_config,
    save_credentials,
)
from hostelry.scaling.decide.responsive.options import parse_options_tag

NOW = 1_700_000_900.0
SINCE = NOW - 900.0
CAUSE = "monitor alarm high in state ALARM triggered policy tracking"
ACT: dict[str, Any] = {
    "id": "a-1",
    "from": 1,
    "to": 3,
    "cause": CAUSE,
    "by": "tracking",
    "description": "Setting desired copy count to 3.",
    "status": "Successful",
    "status_message": "Successfully set.",
    "started_at": SINCE + 450,
    "ended_at": SINCE + 455,
    "not_scaled": [],
    "receipt": {
        "t0": SINCE + 420,
        "t1": SINCE + 450,
        "t2": SINCE + 453.5,
        "detection_s": 30.0,
        "start_s": 3.5,
        "requests_delayed": 2,
        "requests_failed": 1,
        "signal": {"metric": 12.0, "target": 5.0},
    },
}
REFUSED = {**ACT, "status": "Failed", "not_scaled": ["AlreadyAtMaxCapacity"], "receipt": None}
TARGET: dict[str, Any] = {
    "resource_id": "inference-component/base",
    "endpoint": "ep",
    "component": "base",
    "min": 1,
    "max": 4,
    "desired": 3,
    "serving": 2,
    "status": "Updating",
    "problem": "no instance has 8 CPUs free",
    "suspended": {"scale_in": True, "scale_out": False, "scheduled": False},
    "last_decision": {"at": NOW, "text": "The metric is 12, the target 5."},
    "policies": [
        {
            "name": "tracking",
            "tracking": {
                "predefined": "Concurrency",
                "target_value": 5.0,
                "scale_out_cooldown_s": 180.0,
                "scale_in_cooldown_s": 180.0,
                "disable_scale_in": True,
            },
            "stepping": None,
            "alarms": [{"name": "high", "state": "ALARM", "reason": "Threshold Crossed"}],
        },
        {
            "name": "steps",
            "tracking": None,
            "stepping": {"steps": [{}], "adjustment": "ChangeInCapacity", "cooldown_s": 60.0},
            "alarms": [],
        },
    ],
    "schedules": [
        {"name": "night", "schedule": "cron(0 0 * * ? *)", "timezone": "UTC", "next_at": None}
    ],
    "activities": [ACT, REFUSED],
}
TIMELINE: dict[str, Any] = {
    **{name: TARGET[name] for name in ("resource_id", "endpoint", "component", "min", "max")},
    "acts": [ACT],
    "series": {
        "in_flight": [[SINCE + it, 4.0 if it < 420 else 12.0] for it in range(0, 900, 5)],
        "arrivals": [[SINCE + it, 2.0] for it in range(0, 900, 5)],
        "desired": [[SINCE, 1.0], [SINCE + 450, 3.0]],
        "serving": [[SINCE, 1.0], [SINCE + 480, 3.0]],
    },
}


def test_a_status_shows_each_number_its_bounds_and_why() -> None:
    text = "\n".join(status_lines([TARGET]))
    assert "inference-component/base  2        3       1 to 4  Updating" in text
    assert "tracking, steps" in text
    assert "scale_in" in text
    assert "The metric is 12, the target 5." in text
    assert "no instance has 8 CPUs free" in text
    assert "scheduled action night: cron(0 0 * * ? *) UTC, never again" in text


def test_without_targets_the_way_to_register_one_is_named() -> None:
    assert status_lines([]) == policy_lines([]) == activity_lines([], not_scaled=True)
    assert "RegisterScalableTarget" in status_lines([])[0]
    assert explained_lines([]) == []


def test_policies_are_shown_with_their_alarms() -> None:
    text = "\n".join(policy_lines([TARGET]))
    assert "keeps Concurrency at 5, cooldowns 180 s out and 180 s in, never scales in" in text
    assert "1 steps of ChangeInCapacity, cooldown 60 s" in text
    assert "ALARM  high\n      Threshold Crossed" in text


@pytest.mark.parametrize("not_scaled", [False, True])
def test_what_was_not_done_is_shown_on_demand(not_scaled: bool) -> None:
    text = "\n".join(activity_lines([TARGET], not_scaled=not_scaled))
    assert "t0->t1 30.0 s  t1->t2 3.5 s  2 delayed  1 failed" in text
    assert ("AlreadyAtMaxCapacity" in text) is not_scaled


def test_explain_prints_the_last_act_and_what_it_took() -> None:
    text = "\n".join(explained_lines([TARGET]))
    assert "scaled inference-component/base: 2 of 3 serve, 1 to 4 allowed" in text
    assert "1 -> 3 Successful  t0->t1 30.0 s" in text
    assert CAUSE in text


def test_the_chart_marks_when_load_rose_was_answered_for_and_served() -> None:
    rows = [it.text for it in chart(TIMELINE, SINCE, NOW, 109)]
    marks = {it[:8].strip(): it[9:] for it in rows if it[8:9] == "│"}
    assert [marks[it].index("a") for it in ("t0", "t1", "t2")] == [46, 50, 50]
    bars = [it for it in rows if it[8:9] == "┤"]
    assert len(bars) == 6 + 3, "load in six rows, capacity in three"
    assert bars[0].strip().startswith("12┤")
    top = bars[6][9:]
    assert (top.index("░"), top.index("█")) == (50, 53)
    assert all(len(it) <= 109 for it in rows[:-3])
    assert any(CAUSE in it for it in rows)


@pytest.mark.parametrize(
    "series", [{}, {"in_flight": [], "desired": [], "serving": []}], ids=["no", "empty"]
)
def test_a_target_of_which_nothing_is_known_has_an_empty_chart(series: dict[str, Any]) -> None:
    rows = [it.text for it in chart({**TIMELINE, "acts": [], "series": series}, SINCE, NOW, 60)]
    assert rows[-1] == "no acts in this time"


def test_the_chart_ends_with_the_step_of_an_update_under_way() -> None:
    updating = {**TIMELINE, "endpoint": "ep", "update": "step 1 of 2: 10 % of traffic"}
    assert chart(updating, SINCE, NOW, 60)[-1].text == (
        "update of ep: step 1 of 2: 10 % of traffic"
    )


def step(name: str, began_at: float, length_s: float | None, *shares: float) -> dict[str, Any]:
    ended_at = None if length_s is None else began_at + length_s
    least, most = shares
    return {
        "name": name,
        "began_at": began_at,
        "ended_at": ended_at,
        "least_share": least,
        "most_share": most,
    }


def test_updates_are_listed_with_each_step_and_why_one_was_rolled_back() -> None:
    rolled_back = {
        "from_config": "v1",
        "to_config": "v2",
        "began_at": SINCE,
        "ended_at": SINCE + 20.0,
        "outcome": "rolled back",
        "cause": "an alarm\nits log",
        "alarm_names": ["errors", "slow"],
        "steps": [
            step("coming up", SINCE, 12.5, 0.0, 0.0),
            {
                **step("step 1 of 4", SINCE + 12.5, 7.5, 0.25, 0.5),
                "verdict": "worse after 90 requests",
            },
        ],
        "steps_left_out": 3,
    }
    under_way = {
        **rolled_back,
        "ended_at": None,
        "outcome": "under way",
        "cause": None,
        "alarm_names": [],
        "steps": [step("step 1 of 1", SINCE, None, 1.0, 1.0)],
        "steps_left_out": 0,
    }
    begin, second = clock_text(SINCE), clock_text(SINCE + 12.5)
    assert [it.text for it in update_rows("ep", [rolled_back, under_way])] == [
        "updates of ep",
        f"  {begin}  v1 -> v2  rolled back after 20.0 s",
        "    3 older steps are not kept",
        f"    {begin}  coming up   12.5 s  0 % of traffic",
        f"    {second}  step 1 of 4 7.5 s  25 to 50 % of traffic, worse after 90 requests",
        "    an alarm",
        "    alarms: errors, slow",
        f"  {begin}  v1 -> v2  under way",
        f"    {begin}  step 1 of 1  now  100 % of traffic",
    ]
    assert update_rows("ep", []) == []


def test_a_narrow_terminal_still_gets_a_chart() -> None:
    assert len(chart(TIMELINE, SINCE, NOW, 5)) > 10


def test_a_load_without_a_report_was_none_and_a_number_holds() -> None:
    edges = [float(it) for it in range(0, 101, 10)]
    points = [(5.0, 3.0)]
    assert spread(points, edges, holds_s=15.0) == [3.0, 3.0, 3.0, *[0.0] * 7]
    assert spread(points, edges) == [3.0] * 10


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900.0), ("90s", 90.0), ("1.5h", 5400.0), ("15d", 15 * 86400.0)]
)
def test_how_far_back(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "15", "m", "-5m", "0s", "16d", "1e9s", "٣m", "1m2"])
def test_how_far_back_is_refused(text: str) -> None:
    with pytest.raises(TerminalError, match="--since"):
        parse_seconds(text)


@pytest.mark.parametrize(("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_a_timeline_is_drawn_into_a_file(tmp_path: Path, suffix: str, begins: bytes) -> None:
    path = tmp_path / f"timeline{suffix}"
    draw({"timelines": [TIMELINE, TIMELINE], "since": SINCE, "now": NOW}, path, suffix)
    assert path.read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("name", "why"), [("t.gif", "must end with .png"), ("none/t.png", "cannot be written")]
)
def test_a_file_that_cannot_be_drawn_into(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(TerminalError, match=why):
        draw({"timelines": [TIMELINE], "since": SINCE, "now": NOW}, tmp_path / name, ".png")


@cases(
    "options, value",
    case("the target alone", (5.0, 1.0, None, False), "5"),
    case("a rate of false alarms", (2.5, 0.1, None, False), "2.5 false-alarms-per-hour=0.1"),
    case("its own scale-in", (5.0, 1.0, 900.0, False), "5 scale-in-after-s=900"),
    case("off", (None, 1.0, None, True), "off"),
)
def test_options_become_a_tag_of_the_same_meaning(
    options: tuple[float | None, float, float | None, bool], value: str
) -> None:
    target, false_alarms, scale_in_after_s, off = options
    assert tag_value(target, false_alarms, scale_in_after_s, off=off) == value
    text = parse_options_tag(value)
    assert (text is None) == off
    if text is not None:
        assert (text.target, text.false_alarms_per_hour) == (target, false_alarms)
        assert text.scale_in_after_s == scale_in_after_s


@cases(
    "options, why",
    case("no target", (None, 1.0, None, False), "--target is missing"),
    case("a target, and off", (5.0, 1.0, None, True), "give one"),
    case("no concurrency", (0.0, 1.0, None, False), "target is 0"),
    case("no number", (float("nan"), 1.0, None, False), "target is nan"),
    case("never a false alarm", (5.0, 0.0, None, False), "false_alarms_per_hour"),
    case("scale-in at once", (5.0, 1.0, 1.0, False), "scale_in_after_s"),
)
def test_what_cannot_be_is_refused(
    options: tuple[float | None, float, float | None, bool], why: str
) -> None:
    target, false_alarms, scale_in_after_s, off = options
    with pytest.raises(TerminalError, match=why):
        tag_value(target, false_alarms, scale_in_after_s, off=off)


class FakeControl(http.server.BaseHTTPRequestHandler):
    """Answers SageMaker operations for one component "base" on endpoint "ep"."""

    calls: list[tuple[str, dict[str, Any]]]

    def do_POST(self) -> None:
        operation = self.headers["X-Amz-Target"].partition(".")[2]
        params = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
        self.calls.append((operation, params))
        status, answer = 200, {"EndpointName": "ep"}
        if params.get("InferenceComponentName", "base") != "base":
            status, answer = 400, {"message": "Could not find inference component."}
        body = msgspec.json.encode(answer)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home whose control is a fake one."""
    FakeControl.calls = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeControl) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        at = Home(tmp_path)
        save_config(at, UpConfig(control_port=server.server_port))
        save_credentials(at, new_credentials("111122223333", "us-west-2"))
        yield tmp_path
        server.shutdown()
        thread.join()


@cases(
    "arguments, called",
    case("an endpoint", ["--target", "5"], [("AddTags", "endpoint/ep", "5")]),
    case("no more", ["--off"], [("DeleteTags", "endpoint/ep", None)]),
    case(
        "a component",
        ["--component", "base", "--target", "5"],
        [("DescribeInferenceComponent", None, None), ("AddTags", "inference-component/base", "5")],
    ),
    case(
        "a component is left out, whatever its endpoint says",
        ["--component", "base", "--off"],
        [
            ("DescribeInferenceComponent", None, None),
            ("AddTags", "inference-component/base", "off"),
        ],
    ),
)
def test_the_command_sets_the_tag(
    home: Path, arguments: list[str], called: list[tuple[str, str | None, str | None]]
) -> None:
    done = CliRunner().invoke(scaling, ["responsive", "ep", *arguments, "--home", str(home)])
    assert (done.exit_code, done.exception) == (0, None)
    seen = [
        (
            operation,
            params["ResourceArn"].rpartition(":")[2] if "ResourceArn" in params else None,
            params["Tags"][0]["Value"] if "Tags" in params else None,
        )
        for operation, params in FakeControl.calls
    ]
    assert seen == called


@cases(
    "endpoint, component, why",
    case("no such component", "ep", "nobody", "Could not find"),
    case("on another endpoint", "other", "base", "is on endpoint ep, not on other"),
)
def test_a_refusal_is_printed(home: Path, endpoint: str, component: str, why: str) -> None:
    arguments = ["responsive", endpoint, "--component", component, "--target", "5"]
    done = CliRunner().invoke(scaling, [*arguments, "--home", str(home)])
    assert isinstance(done.exception, TerminalError)
    assert why in str(done.exception)


def test_without_control_the_error_names_what_to_start(home: Path) -> None:
    config = load_config(Home(home))
    save_config(Home(home), replace(config, control_port=1))
    done = CliRunner().invoke(scaling, ["responsive", "ep", "--target", "5", "--home", str(home)])
    assert isinstance(done.exception, TerminalError)
    assert "hostelry up" in str(done.exception)
