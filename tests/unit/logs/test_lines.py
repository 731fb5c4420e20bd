from tests.cases import case, cases

from hostelry.logs.events import MAX_EVENT_BYTES, get_messages


@cases(
    "written, is_final, expected",
    case("whole lines", b"one\ntwo\n", False, (["one", "two"], 8)),
    case("a part is left", b"one\ntw", False, (["one"], 4)),
    case("a part at the end", b"one\ntw", True, (["one", "tw"], 6)),
    case("empty lines are no events", b"one\r\n\n", False, (["one"], 6)),
    case("bytes that are no text", b"\xff\n", False, (["\ufffd"], 2)),
    case("nothing", b"", True, ([], 0)),
    case(
        "a long line becomes two events",
        b"a" * (MAX_EVENT_BYTES + 1),
        False,
        (["a" * MAX_EVENT_BYTES, "a"], MAX_EVENT_BYTES + 1),
    ),
)
def test_lines_become_messages(
    written: bytes, is_final: bool, expected: tuple[list[str], int]
) -> None:
    assert get_messages(written, is_final=is_final) == expected
