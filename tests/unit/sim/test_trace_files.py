"""Traces as CSV: parsed rows, refusals with their places, and bounded memory."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.sim import trace as trace_file
from hostelry.sim.scenario import build_scenario
from hostelry.sim.trace import BLOCK_ROWS, Block, Trace, open_trace, write_trace

HEADER = "arrived_at,input_tokens,output_tokens\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def read(path: Path, max_rows: int | None = None) -> tuple[Trace, list[Block]]:
    trace = open_trace(path, max_rows)
    return trace, list(trace.blocks)


@cases(
    "text, at_s, tokens",
    case("seconds", f"{HEADER}5,10,20\n7.5,1,2\n", [0.0, 2.5], [10, 1]),
    case(
        "Azure's own header, from the beginning of its first second",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
        [0.68059, 4.995169],
        [374, 396],
    ),
    case(
        "dates with time zones",
        f"{HEADER}2026-01-05T00:00:00+01:00,1,1\n2026-01-04T23:00:01Z,2,1\n",
        [0.0, 1.0],
        [1, 2],
    ),
    case(
        "columns in any order, others beside, empty lines, ties",
        "output_tokens, Arrived_At ,extra,input_tokens\n1,0,x,3\n\n2,0,y,4\n",
        [0.0, 0.0],
        [3, 4],
    ),
    case("a byte order mark, no last newline", f"\ufeff{HEADER}1,1,0", [0.0], [1]),
    case("quotes and Windows' line ends", f'{HEADER}"1","2.0","3"\r\n', [0.0], [2]),
)
def test_what_is_read(tmp_path: Path, text: str, at_s: list[float], tokens: list[int]) -> None:
    _, (block,) = read(written(tmp_path, text))
    assert block.at_s.tolist() == pytest.approx(at_s)
    assert block.input_tokens.tolist() == tokens


def test_models_and_sessions_are_kept_apart(tmp_path: Path) -> None:
    text = (
        "arrived_at,input_tokens,output_tokens,model,tenant,session\n"
        "0,1,1,b,t,s1\n1,1,1,a,t,\n2,1,1,b,,s1\n3,1,1,,,s2\n"
    )
    trace, (block,) = read(written(tmp_path, text))
    assert [trace.models[it] for it in block.model] == ["b", "a", "b", "model"]
    assert block.session.tolist() == [0, -1, 0, 1]


@cases(
    "rows, message",
    case("nothing but a header", "", "line 1.*no rows"),
    case("a cell too few", "1,2", "line 2: 2 cells"),
    case("no instant", "soon,1,1", "line 2: arrived_at is 'soon'.*ISO 8601"),
    case("not a number", "nan,1,1", "line 2: arrived_at is 'nan'.*finite"),
    case("endless", "1e999,1,1", "line 2: arrived_at is '1e999'.*finite"),
    case("before the start", "-1,1,1", "line 2: arrived_at is '-1'.*not negative"),
    case("out of order", "5,1,1\n4,1,1", "line 3: arrived_at is '4'.*sort"),
    case("after all time", "0,1,1\n1e300,1,1", "line 3: arrived_at.*400 at most"),
    case("dates among seconds", "0,1,1\n2026-01-05,1,1", "line 3:.*mixed"),
    case("fewer than no tokens", "0,-1,1", "line 2: input_tokens is '-1'"),
    case("half a token", "0,1.5,1", "line 2: input_tokens is '1.5'"),
    case("a huge answer", "0,1,1e18", "line 2: output_tokens.*10,000,000"),
    case("an endless answer", "0,1,inf", "line 2: output_tokens is 'inf'"),
    case("no number of tokens", "0,1,nan", "line 2: output_tokens is 'nan'"),
    case("another base", "0,0x10,1", "line 2: input_tokens is '0x10'"),
    case("a zero byte", "0,\x00,1", "line 2: input_tokens"),
    case("an endless line", "0," + "9" * 5000 + ",1", "line 2: the line has more"),
    case("the first of two errors", "0,1,1\n0,1,x\n0,y,1", "line 3: output_tokens"),
)
def test_what_is_refused_names_the_line(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(TerminalError, match=f"(?s)trace.csv, {message}"):
        read(written(tmp_path, HEADER + rows))


@cases(
    "header, message",
    case("another file", "a,b,c", "lacks arrived_at, input_tokens, output_tokens"),
    case("a column too few", "arrived_at,input_tokens", "lacks output_tokens"),
    case("one twice", "arrived_at,input_tokens,output_tokens,model,Model", "model twice"),
    case("an empty file", "", "lacks"),
)
def test_a_header_is_checked(tmp_path: Path, header: str, message: str) -> None:
    with pytest.raises(TerminalError, match=message):
        read(written(tmp_path, f"{header}\n0,1,1\n"))


def test_a_trace_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TerminalError, match=r"none\.csv cannot be read: No such file"):
        open_trace(tmp_path / "none.csv")


def test_too_many_rows_are_refused_and_a_limit_reads_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_file, "MAX_ROWS", 3)
    path = written(tmp_path, HEADER + "0,1,1\n" * 4)
    with pytest.raises(TerminalError, match=r"line 5: more than 3 rows.*--limit"):
        read(path)
    _, (block,) = read(path, max_rows=2)
    assert len(block) == 2


def test_a_file_is_read_block_by_block(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER + "0,1,1\n" * (BLOCK_ROWS + 1) + "0,1,oops\n")
    blocks = iter(open_trace(path).blocks)
    assert len(next(blocks)) == BLOCK_ROWS
    with pytest.raises(TerminalError, match=f"line {BLOCK_ROWS + 3}"):
        next(blocks)


def test_a_written_trace_is_read_as_the_same(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    trace = build_scenario("idle-then-one")
    (wanted,) = trace.blocks
    assert write_trace(trace, path) == len(wanted)
    _, (found,) = read(path)
    assert np.array_equal(found.at_s, wanted.at_s - wanted.at_s[0])
    assert np.array_equal(found.input_tokens, wanted.input_tokens)


def test_a_trace_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TerminalError, match="cannot be written"):
        write_trace(build_scenario("idle-then-one"), tmp_path / "no" / "trace.csv")


@given(st.text(max_size=300))
def test_whatever_a_file_holds_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("any") / "trace.csv"
    path.write_text(HEADER + text, encoding="utf-8", errors="surrogateescape", newline="")
    refusal, num_read = "", 0
    try:
        num_read = sum(map(len, read(path)[1]))
    except TerminalError as error:
        refusal = str(error)
    assert bool(num_read) is not ("line " in refusal)
