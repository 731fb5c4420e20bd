"""Incremental detokenization and stop strings, for any division of the text."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.engine.text import IncrementalDetokenizer, StopStrings

CONTROL = 51
TEXT = st.text(alphabet="ab é€😀日\n", max_size=30)


def decode_bytes(ids: list[int]) -> str:
    """A byte-level tokenizer whose tokens 256 and up are words and one special token."""
    words = {256: b" hello", 257: "日本".encode(), 258: b"", 259: "é".encode()[:1]}
    return b"".join(words.get(i, bytes([i % 256])) for i in ids).decode("utf-8", "replace")


def decode_metaspace(ids: list[int]) -> str:
    """Words with a leading space that is dropped at the very start, as sentencepiece does.

    CONTROL is a token without text.
    """
    words = [f" w{i}" if i % 3 else f"x{i}" for i in ids if i != CONTROL]
    return "".join(words).removeprefix(" ")


def deltas(detokenizer: IncrementalDetokenizer, ids: list[int]) -> list[str]:
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.finish()]


@given(st.lists(st.integers(0, 259), max_size=80))
def test_deltas_of_any_bytes_make_up_the_whole_text(ids: list[int]) -> None:
    assert "".join(deltas(IncrementalDetokenizer(decode_bytes), ids)) == decode_bytes(ids)


@given(TEXT)
def test_text_appears_as_soon_as_its_last_byte(text: str) -> None:
    detokenizer = IncrementalDetokenizer(decode_bytes)
    for character in text * 4:
        *early, last = character.encode()
        assert [detokenizer.push(byte) for byte in early] == [""] * len(early)
        assert detokenizer.push(last) == character


@given(st.lists(st.integers(0, CONTROL), max_size=80), st.lists(st.integers(0, 50), max_size=12))
def test_leading_spaces_stay(ids: list[int], prompt: list[int]) -> None:
    assert "".join(deltas(IncrementalDetokenizer(decode_metaspace), ids)) == decode_metaspace(ids)
    tail = IncrementalDetokenizer(decode_metaspace, prompt)
    whole = decode_metaspace(prompt + ids)[len(decode_metaspace(prompt)) :]
    assert "".join(deltas(tail, ids)) == whole


def test_the_word_after_a_token_without_text_keeps_its_space() -> None:
    detokenizer = IncrementalDetokenizer(decode_metaspace, [1, 2, 4, 5, 7])
    assert [detokenizer.push(it) for it in (CONTROL, 8, CONTROL, CONTROL, 10)] == [
        "", " w8", "", "", " w10",
    ]  # fmt: skip


def test_a_long_run_of_bytes_that_are_no_text() -> None:
    ids = [255] * 1000 + list(b"after") + [255] * 3
    pieces = deltas(IncrementalDetokenizer(decode_bytes), ids)
    assert "".join(pieces) == decode_bytes(ids)
    assert max(len(piece) for piece in pieces) < 20


def test_windows_stay_short() -> None:
    longest = 0

    def decode(ids: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return decode_bytes(ids)

    deltas(IncrementalDetokenizer(decode), list(b"plain text " * 100))
    assert longest <= 17


def test_nothing_generated_is_no_text() -> None:
    assert IncrementalDetokenizer(decode_bytes).finish() == ""


@cases(
    "stops, text, shown, stop",
    case("no stop strings", [], "all of it", "all of it", None),
    case("text before the stop", ["END"], "one END two", "one ", "END"),
    case("a beginning that comes to nothing", ["END"], "one EN", "one EN", None),
    case("the stop that ends first wins", ["b", "abc"], "xabc", "xa", "b"),
    case("of two that end together the longest", ["c", "abc"], "xabc", "x", "abc"),
    case("a repeated beginning", ["aab"], "aaaab", "aa", "aab"),
    case("line ends", ["\n\n"], "a\nb\n\nc", "a\nb", "\n\n"),
    case("beyond ASCII", ["日本"], "x日日本y", "x日", "日本"),
)
@given(data=st.data())
def test_stop_strings_however_the_text_is_cut(
    data: st.DataObject, stops: list[str], text: str, shown: str, stop: str | None
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=5).map(sorted))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    for include_stop in (False, True):
        finder = StopStrings(stops, include_stop=include_stop)
        seen = ""
        for piece in pieces:
            result = finder.feed(piece)
            seen += result.text
            if result.stop is not None:
                break
        else:
            seen += finder.flush()
        assert result.stop == stop
        assert seen == shown + (stop if include_stop and stop else "")


@given(st.lists(TEXT.filter(bool), max_size=3), st.lists(TEXT, max_size=6))
def test_without_a_stop_all_text_comes_out(stops: list[str], pieces: list[str]) -> None:
    finder = StopStrings(stops)
    seen = ""
    for piece in pieces:
        result = finder.feed(piece)
        seen += result.text
        if result.stop is not None:
            assert any(stop in "".join(pieces) for stop in stops)
            return
    assert seen + finder.flush() == "".join(pieces)
    assert not any(stop in "".join(pieces) for stop in stops)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="a stop string is empty"):
        StopStrings(["a", ""])


def test_values_and_text_need_no_torch() -> None:
    code = (
        "import json, sys, hostelry.engine.text, hostelry.engine.request, hostelry.engine.config;"
        "print(json.dumps([m for m in ('torch', 'numpy', 'safetensors') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(done.stdout) == []
