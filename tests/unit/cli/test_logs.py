from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.logs import find_logs, kept_logs, last_lines, new_lines, request_lines
from hostelry.domain.log_source import LogSource
from hostelry.domain.scope import Scope
from hostelry.home.home import Home
from hostelry.logs.events import NewEvent
from hostelry.logs.store import LogStore

STATE = {
    "endpoints": [
        {
            "name": "chat",
            "components": [
                {"name": "base", "base": None},
                {"name": "pirate", "base": "base"},
            ],
            "copies": [
                {"id": "c-111", "owner": "component/base"},
                {"id": "c-222", "owner": "component/other"},
            ],
        },
        {"name": "plain", "copies": [{"id": "c-333", "owner": "variant/AllTraffic"}]},
    ]
}
TRACE = [
    "2026-01-01 00:00:02,000 ERROR x: request r-1: failed",
    "Traceback (most recent call last):",
    '  File "x.py"',
    "ValueError: wrong",
]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.make()
    for name in ("control", "gateway-1", "gateway-2"):
        (made.logs / f"{name}.log").write_text(name)
    for instance, copies in (("i-1", ("c-111", "c-222")), ("i-2", ("c-333",))):
        root = made.instances / instance
        for copy in copies:
            (root / "copies" / copy).mkdir(parents=True)
            (root / "copies" / copy / "log").write_text(copy)
        (root / "agent.log").write_text(instance)
    return made


@cases(
    "name, expected",
    case("nothing named: every process", None, ["control", "gateway-1", "gateway-2"]),
    case("the gateway: all its workers", "gateway", ["gateway-1", "gateway-2"]),
    case("one of its workers", "gateway-2", ["gateway-2"]),
    case("a process", "control", ["control"]),
    case("an instance: its agent", "i-1", ["i-1"]),
    case("a copy", "c-111", ["c-111"]),
    case("the start of a copy's id", "c-3", ["c-333"]),
    case("an endpoint: its copies", "chat", ["c-111", "c-222"]),
    case("an endpoint whose variant names a model", "plain", ["c-333"]),
    case("a component", "base", ["c-111"]),
    case("an adapter: the copies of its base", "pirate", ["c-111"]),
)
def test_what_a_name_means(home: Home, name: str | None, expected: list[str]) -> None:
    assert list(find_logs(home, STATE, name)) == expected


def test_copies_are_found_without_control_too(home: Home) -> None:
    assert list(find_logs(home, None, "c-111")) == ["c-111"]


@pytest.mark.parametrize("name", ["nobody", "../control", "/etc/passwd", "*"])
def test_an_unknown_name_is_refused_with_the_known_ones(home: Home, name: str) -> None:
    with pytest.raises(TerminalError, match="There are: control, gateway-1, gateway-2, i-1, c-111"):
        find_logs(home, STATE, name)


@cases(
    "name, answers, text",
    case("a copy", "c-0123456789abcdef0", True, "this copy is gone, and no line"),
    case("an instance", "i-0123456789abcdef0", True, "this instance is gone"),
    case("an endpoint", "empty", True, "it is Failed and has no running copy"),
    case("a component", "late", True, "it is Creating and has no running copy"),
    case("a name that is none", "nobody", True, "it is no process, endpoint"),
    case("control does not answer", "empty", False, ".*control, which knows"),
)
def test_why_a_name_leads_to_no_log(home: Home, name: str, answers: bool, text: str) -> None:
    late = {"name": "late", "status": "Creating"}
    empty = {"name": "empty", "status": "Failed", "components": [late]}
    state = {"endpoints": [*STATE["endpoints"], empty]} if answers else None
    with pytest.raises(TerminalError, match=f"no log for {name}: {text}"):
        find_logs(home, state, name)


@cases(
    "name, expected",
    case("name", "ic", {"main/i-9/c-9 of /aws/sagemaker/InferenceComponents/ic"}),
    case("copy", "c-9", {"main/i-9/c-9 of /aws/sagemaker/InferenceComponents/ic"}),
    case("host", "i-9", {"main/i-9/c-9 of /aws/sagemaker/InferenceComponents/ic"}),
    case("a part of an id", "i-", set()),
    case("a name that is none", "none", set()),
)
def test_lines_of_a_copy_that_is_gone_are_kept(home: Home, name: str, expected: set[str]) -> None:
    assert kept_logs(home, name, 2) == {}
    store = LogStore(home.log_events)
    source = LogSource(
        scope=Scope("111122223333", "us-east-1"),
        endpoint_name="e",
        variant_name="main",
        component_name="ic",
        instance_id="i-9",
        copy_id="c-9",
    )
    events = [NewEvent(at_ms=number, message=f"{number}") for number in range(3)]
    store.collect(source, "c-9/1", 6, events, 1)
    store.close()
    assert kept_logs(home, name, 2) == {title: ["1", "2"] for title in expected}


@cases(
    "text, count, expected",
    case("the last lines", "a\nb\nc\n", 2, ["b", "c"]),
    case("fewer than asked, the last unfinished", "a\nb", 5, ["a", "b"]),
    case("an empty log", "", 5, []),
    case("no lines asked", "a\n", 0, []),
)
def test_last_lines(tmp_path: Path, text: str, count: int, expected: list[str]) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    assert last_lines(path, count) == expected


def test_bytes_that_are_no_text_are_shown_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a\xff\n")
    assert last_lines(tmp_path / "log", 1) == ["a\N{REPLACEMENT CHARACTER}"]


def test_following_prints_whole_lines_and_restarts_when_a_log_is_cut(tmp_path: Path) -> None:
    path, positions = tmp_path / "log", {"x": 0}
    path.write_text("one\ntw")
    assert new_lines(path, "x", positions) == ["one"]
    path.write_text("one\ntwo\nthree\n")
    assert new_lines(path, "x", positions) == ["two", "three"]
    assert new_lines(path, "x", positions) == []
    path.write_text("new\n")
    assert new_lines(path, "x", positions) == ["new"]
    path.unlink()
    assert new_lines(path, "x", positions) == []


@cases(
    "lines, found",
    case(
        "records of the request with their tracebacks",
        ["2026-01-01 00:00:01,000 INFO x: a [request r-1]", *TRACE, "2026-01-01 00:00:03,0 y"],
        ["2026-01-01 00:00:01,000 INFO x: a [request r-1]", *TRACE],
    ),
    case(
        "JSON lines",
        ['{"time":"1","request_id":"r-1"}', '{"time":"2","request_id":"r-2"}'],
        ['{"time":"1","request_id":"r-1"}'],
    ),
    case("a copy's own format", ["plain r-1", "plain"], ["plain r-1"]),
    case("a log that begins within", ["  File of another", *TRACE[:1]], TRACE[:1]),
    case("an empty log", [], []),
)
def test_lines_about_a_request(lines: list[str], found: list[str]) -> None:
    assert request_lines(lines, "r-1") == found
