import pytest

from hostelry.logs.events import MAX_EVENT_BYTES, get_messages


@pytest.mark.parametrize(
    ("written", "is_final", "expected"),
    [
        pytest.param(b"one\ntwo\n", False, (["one", "two"], 8), id="whole lines"),
        pytest.param(b"one\ntw", False, (["one"], 4), id="a part is left"),
        pytest.param(b"one\ntw", True, (["one", "tw"], 6), id="a part at the end"),
        pytest.param(b"one\r\n\n", False, (["one"], 6), id="empty lines are no events"),
        pytest.param(b"\xff\n", False, (["\ufffd"], 2), id="bytes that are no text"),
        pytest.param(b"", True, ([], 0), id="nothing"),
        pytest.param(
            b"a" * (MAX_EVENT_BYTES + 1),
            False,
            (["a" * MAX_EVENT_BYTES, "a"], MAX_EVENT_BYTES + 1),
            id="a long line becomes two events",
        ),
    ],
)
def test_lines_become_messages(
    written: bytes, is_final: bool, expected: tuple[list[str], int]
) -> None:
    assert get_messages(written, is_final=is_final) == expected
