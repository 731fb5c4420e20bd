"""`hostelry scaling responsive`: the tag that it sets, and what it refuses."""

import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from hostelry.base.errors import TerminalError
from hostelry.cli.scaling import scaling, tag_value
from hostelry.home.home import (
    Home,
    UpConfig,
    load_config,
    new_credentials,
    save_config,
    save_credentials,
)
from hostelry.scaling.decide.responsive.opt_in import options_of_tag


@pytest.mark.parametrize(
    ("options", "value"),
    [
        pytest.param((5.0, 1.0, None, False), "5", id="the target alone"),
        pytest.param(
            (2.5, 0.1, None, False), "2.5 false-alarms-per-hour=0.1", id="a rate of false alarms"
        ),
        pytest.param((5.0, 1.0, 900.0, False), "5 scale-in-after-s=900", id="its own scale-in"),
        pytest.param((None, 1.0, None, True), "off", id="off"),
    ],
)
def test_options_become_a_tag_of_the_same_meaning(
    options: tuple[float | None, float, float | None, bool], value: str
) -> None:
    target, false_alarms, scale_in_after_s, off = options
    assert tag_value(target, false_alarms, scale_in_after_s, off=off) == value
    text = options_of_tag(value)
    assert (text is None) == off
    if text is not None:
        assert (text.target, text.false_alarms_per_hour) == (target, false_alarms)
        assert text.scale_in_after_s == scale_in_after_s


@pytest.mark.parametrize(
    ("options", "why"),
    [
        pytest.param((None, 1.0, None, False), "--target is missing", id="no target"),
        pytest.param((5.0, 1.0, None, True), "give one", id="a target, and off"),
        pytest.param((0.0, 1.0, None, False), "target is 0", id="no concurrency"),
        pytest.param((float("nan"), 1.0, None, False), "target is nan", id="no number"),
        pytest.param((5.0, 0.0, None, False), "false_alarms_per_hour", id="never a false alarm"),
        pytest.param((5.0, 1.0, 1.0, False), "scale_in_after_s", id="scale-in at once"),
    ],
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


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        pytest.param(["--target", "5"], [("AddTags", "endpoint/ep", "5")], id="an endpoint"),
        pytest.param(["--off"], [("DeleteTags", "endpoint/ep", None)], id="no more"),
        pytest.param(
            ["--component", "base", "--target", "5"],
            [
                ("DescribeInferenceComponent", None, None),
                ("AddTags", "inference-component/base", "5"),
            ],
            id="a component",
        ),
        pytest.param(
            ["--component", "base", "--off"],
            [
                ("DescribeInferenceComponent", None, None),
                ("AddTags", "inference-component/base", "off"),
            ],
            id="a component is left out, whatever its endpoint says",
        ),
    ],
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


@pytest.mark.parametrize(
    ("endpoint", "component", "why"),
    [
        pytest.param("ep", "nobody", "Could not find", id="no such component"),
        pytest.param("other", "base", "is on endpoint ep, not on other", id="on another endpoint"),
    ],
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
