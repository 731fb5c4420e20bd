"""`hostelry replay` from its command line: comparisons, trace files, refusals."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from typer.testing import CliRunner, Result

from hostelry.base.errors import TerminalError
from hostelry.cli.main import app
from hostelry.cli.replay_run import ChatClient, progress_printer
from hostelry.sim.scenario import SCENARIOS

POLICIES = Path(__file__).resolve().parents[3] / "examples" / "policies"
SHORT = ("--scenario", "step-4x", "--seed", "3")


def policy(name: str) -> tuple[str, str]:
    return ("--policy", str(POLICIES / f"{name}.json"))


def ran(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["replay", *arguments], catch_exceptions=True)
    if isinstance(result.exception, TerminalError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_the_list_has_every_scenario() -> None:
    text = ran("--list").stdout.splitlines()
    assert [it.split()[0] for it in text] == list(SCENARIOS)


def test_policies_stand_side_by_side() -> None:
    text = ran(*SHORT, *policy("component-concurrency"), *policy("responsive"), "--acts").stdout
    lines = text.splitlines()
    assert "6,0" in lines[0]
    assert "seed 3" in lines[0]
    assert "service times: measured" in lines[1]
    heading = next(it for it in lines if "component-concurrency" in it)
    assert heading.split() == ["component-concurrency", "responsive"]
    figures = ("failed", "latency p99", "first token p50", "copy-seconds", "overshoot")
    for figure in (*figures, "instance-hours", "spurious acts", "t0 -> t1", "t1 -> t2", "digest"):
        assert sum(it.strip().startswith(figure) for it in lines) == 1, figure
    assert any(it.startswith("decided") for it in lines)


def outcomes(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ran(*arguments, "--json").stdout)["outcomes"]
    return found


def test_json_has_all_figures_and_acts_and_is_the_same_again() -> None:
    (first,) = outcomes(*SHORT, *policy("component-concurrency"))
    (again,) = outcomes(*SHORT, *policy("component-concurrency"))
    assert first == again
    assert len(first["acts"]) == first["num_out"] + first["num_in"]
    assert {"p50", "p90", "p99", "mean"} == set(first["latency_s"])
    assert first["num_answered"] == first["num_requests"]


def test_the_same_policy_twice_has_two_names_and_one_outcome() -> None:
    one, two = outcomes(*SHORT, *policy("fixed"), *policy("fixed"))
    assert (one["policy"], two["policy"]) == ("fixed", "fixed #2")
    assert one["digest"] == two["digest"]


def test_a_written_trace_replays_as_its_scenario(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    text = ran("--scenario", "idle-then-one", "--write-trace", str(path)).stdout
    assert text.startswith("2 rows written")
    (found,) = outcomes("--trace", str(path), *policy("fixed"))
    assert found["num_requests"] == 2
    (part,) = outcomes("--trace", str(path), "--limit", "1", *policy("fixed"))
    assert part["num_requests"] == 1


@cases(
    "arguments, reported",
    case("nothing to replay", (), "one of --trace FILE and --scenario NAME"),
    case("two things to replay", (*SHORT, "--trace", "x.csv"), "one of --trace"),
    case("no policy", SHORT, "no --policy FILE"),
    case("no such load", ("--scenario", "no-such", *policy("fixed")), "no scenario"),
    case("no such policy", (*SHORT, "--policy", "none.json"), "cannot be read"),
    case("no service", (*SHORT, *policy("fixed"), "--service", "none.json"), "cannot be read"),
    case(
        "an option beyond its limit",
        (*SHORT, *policy("fixed"), "--max-instances", "0"),
        "max_instances is 0",
    ),
    case("nowhere to write", ("--calibrate", "chat/assistant"), "--service FILE"),
)
def test_what_cannot_be_replayed_is_refused(arguments: Sequence[str], reported: str) -> None:
    with pytest.raises(TerminalError, match=reported):
        ran(*arguments)


def test_help_has_examples() -> None:
    text = CliRunner().invoke(app, ["replay", "--help"], env={**os.environ, "COLUMNS": "200"})
    assert text.stdout.count("Example: hostelry replay") >= 4


def test_progress_is_printed_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    reported = progress_printer("mine", every_s=0.0)
    reported(1_000_000, 7200.0)
    assert "mine: 1,000,000 requests, 2.0 h of the trace" in capsys.readouterr().err


class FakeRuntime:
    """Streams a chat of two tokens in pieces that split lines. Remembers its requests."""

    def __init__(
        self, usage: bytes = b'"usage": {"prompt_tokens": 9, "completion_tokens": 2}'
    ) -> None:
        self.asked: list[dict[str, Any]] = []
        self.usage = usage

    def invoke_endpoint_with_response_stream(self, **asked: Any) -> Any:
        self.asked.append(asked)
        whole = b'{"choices": [1]}\ndata: {"choices": [], ' + self.usage + b"}\ndata: [DONE]\n"
        pieces = (whole[:7], whole[7:30], whole[30:])
        return {"Body": [{"PayloadPart": {"Bytes": it}} for it in pieces]}


def test_calibration_asks_for_streams_of_a_component_that_no_cache_knows() -> None:
    runtime = FakeRuntime()
    asking = ChatClient(runtime, "chat", "assistant")
    found = [asking.one(8, beside=1), *asking.together(2)]
    assert {(it.input_tokens, it.output_tokens) for it in found} == {(9, 2)}
    assert all(0.0 < it.first_s <= it.last_s for it in found)
    assert {it["InferenceComponentName"] for it in runtime.asked} == {"assistant"}
    assert len({it["Body"] for it in runtime.asked}) == len(runtime.asked)
    assert json.loads(runtime.asked[0]["Body"])["stream"] is True


def test_calibration_on_something_that_is_no_chat_is_refused() -> None:
    with pytest.raises(TerminalError, match="not a stream of chat completion chunks"):
        ChatClient(FakeRuntime(usage=b'"x": 1'), "chat", None).one(8, beside=1)
