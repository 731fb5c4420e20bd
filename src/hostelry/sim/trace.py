"""A trace: requests in the order of their arrival, in blocks, also as a CSV file.

A file is read block by block with every row checked. Its columns by name, in any order:
`arrived_at` (seconds, or ISO 8601), `input_tokens`, `output_tokens`, and if wanted `model`,
`tenant`, `session`. Azure's header (TIMESTAMP, ContextTokens, GeneratedTokens) is read too. A file
of any length takes the memory of one block.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import msgspec
import numpy as np
import numpy.typing as npt

from hostelry.base.errors import TerminalError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

BLOCK_ROWS = 65_536
BEGINS_AT = 1_767_571_200.0  # Monday, 2026-01-05 00:00 UTC: where a trace has no date
NO_SESSION = -1
ONLY_MODEL = "model"


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Some requests: columns of one length, in order of arrival.

    `at_s` is seconds since the trace's beginning, `model` a position in the trace's `models`,
    `session` a number that requests of one session share, `NO_SESSION` for none.
    """

    at_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    model: IntArray
    session: IntArray

    def __len__(self) -> int:
        return len(self.at_s)


class Trace(msgspec.Struct, kw_only=True):
    """Arrivals by blocks.

    Args:
        name: the name in reports.
        blocks: the requests, as an iterator that can be walked once, or a sequence.
        models: names that blocks refer to. Grows while a file is read.
        begins_at: the wall time, in seconds since the epoch, of second 0.
        lasts_s: how long it lasts. None: until the last arrival.
        steps_s: when the rate truly rises, if that is known.
    """

    name: str
    blocks: Iterator[Block] | Sequence[Block]
    models: list[str] = msgspec.field(default_factory=lambda: [ONLY_MODEL])
    begins_at: float = BEGINS_AT
    lasts_s: float | None = None
    steps_s: tuple[float, ...] = ()


def build_block(
    at_s: FloatArray,
    input_tokens: IntArray,
    output_tokens: IntArray,
    model: IntArray | None = None,
    session: IntArray | None = None,
) -> Block:
    """Build a block in the order of arrival. Without `model` all requests are for the first one."""
    order = np.argsort(at_s, kind="stable")
    zeros = np.zeros(len(at_s), dtype=np.int64)
    sessions = zeros + NO_SESSION if session is None else session
    return Block(
        at_s=np.asarray(at_s, dtype=np.float64)[order],
        input_tokens=np.asarray(input_tokens, dtype=np.int64)[order],
        output_tokens=np.asarray(output_tokens, dtype=np.int64)[order],
        model=(zeros if model is None else np.asarray(model, dtype=np.int64))[order],
        session=np.asarray(sessions, dtype=np.int64)[order],
    )


MAX_ROWS = 50_000_000
MAX_LINE_CHARS = 4096
MAX_TOKENS = 10_000_000
MAX_SPAN_S = 400 * 86_400.0
MAX_NAME_CHARS = 256
MAX_MODELS = 100_000
MAX_SESSIONS = 5_000_000
REQUIRED = ("arrived_at", "input_tokens", "output_tokens")
OPTIONAL = ("model", "tenant", "session")
ALIASES = {
    "timestamp": "arrived_at",
    "contexttokens": "input_tokens",
    "generatedtokens": "output_tokens",
}


def open_trace(path: Path, max_rows: int | None = None) -> Trace:
    """The trace in a file. Rows are read while its blocks are walked, once.

    Args:
        path: a CSV file with a header.
        max_rows: read no more than these. None: all, and `MAX_ROWS` at most.

    Raises TerminalError, also while the blocks are walked, with the line and its error.
    """
    reading = _Reading(path=path, max_rows=max_rows)
    trace = Trace(name=path.name, blocks=reading.blocks(), models=reading.models)
    first = reading.first_arrival()
    if first.is_date:
        trace.begins_at = first.second
    return trace


class _Instant(msgspec.Struct, frozen=True):
    at: float
    is_date: bool

    @property
    def second(self) -> float:
        """Where the trace begins if this is its first instant: a date's whole second."""
        return float(math.floor(self.at)) if self.is_date else self.at


class _Rows(msgspec.Struct, kw_only=True):
    """Columns of a block that is being read."""

    at_s: list[float] = msgspec.field(default_factory=list)
    input_tokens: list[int] = msgspec.field(default_factory=list)
    output_tokens: list[int] = msgspec.field(default_factory=list)
    model: list[int] = msgspec.field(default_factory=list)
    session: list[int] = msgspec.field(default_factory=list)

    def block(self) -> Block:
        def whole(values: list[int]) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
            return np.array(values, dtype=np.int64)

        return build_block(
            np.array(self.at_s),
            whole(self.input_tokens),
            whole(self.output_tokens),
            whole(self.model),
            whole(self.session),
        )


class _Reading(msgspec.Struct, kw_only=True):
    """One walk over a file."""

    path: Path
    max_rows: int | None
    models: list[str] = msgspec.field(default_factory=list)
    _line: int = 0
    _first: _Instant | None = None
    _last: float = -math.inf
    _places: dict[str, int] = msgspec.field(default_factory=dict)
    _sessions: dict[str, int] = msgspec.field(default_factory=dict)

    def first_arrival(self) -> _Instant:
        """When the first request comes. Raises as reading does."""
        with self._open() as file:
            lines = self._lines(file)
            columns = self._columns(next(lines, ""))
            row = next(lines, None)
            if row is None:
                raise self._wrong("the file has no rows")
            return self._instant(self._cells(row, columns)["arrived_at"])

    def blocks(self) -> Iterator[Block]:
        """The rows, `BLOCK_ROWS` at a time."""
        self._line, rows, num_rows = 0, _Rows(), 0
        with self._open() as file:
            lines = self._lines(file)
            columns = self._columns(next(lines, ""))
            for line in lines:
                if self.max_rows is not None and num_rows >= self.max_rows:
                    break
                num_rows += 1
                if num_rows > MAX_ROWS:
                    raise self._wrong(f"more than {MAX_ROWS:,} rows; take a part with --limit")
                self._add(rows, self._cells(line, columns))
                if len(rows.at_s) == BLOCK_ROWS:
                    yield rows.block()
                    rows = _Rows()
        if rows.at_s:
            yield rows.block()

    def _open(self) -> TextIO:
        try:
            return self.path.open(encoding="utf-8-sig", errors="replace", newline=None)
        except OSError as error:
            raise TerminalError(f"{self.path} cannot be read: {error.strerror}") from None

    def _lines(self, file: TextIO) -> Iterator[str]:
        """Lines that are not empty. A very long line is refused before it fills the memory."""
        while line := file.readline(MAX_LINE_CHARS + 1):
            self._line += 1
            if len(line) > MAX_LINE_CHARS:
                raise self._wrong(f"the line has more than {MAX_LINE_CHARS} characters")
            if line.strip():
                yield line

    def _columns(self, header: str) -> Mapping[str, int]:
        names = [it.strip().strip('"').lower() for it in header.split(",")]
        names = [ALIASES.get(it, it) for it in names]
        missing = [it for it in REQUIRED if it not in names]
        if missing:
            raise self._wrong(
                f"the header lacks {', '.join(missing)}: it must name {', '.join(REQUIRED)} "
                "(or TIMESTAMP, ContextTokens, GeneratedTokens)"
            )
        twice = sorted({it for it in names if names.count(it) > 1})
        if twice:
            raise self._wrong(f"the header names {twice[0]} twice")
        return {it: names.index(it) for it in (*REQUIRED, *OPTIONAL) if it in names}

    def _cells(self, line: str, columns: Mapping[str, int]) -> dict[str, str]:
        cells = line.split(",")
        if len(cells) <= max(columns.values()):
            raise self._wrong(f"{len(cells)} cells, and the header names more columns")
        return {name: cells[place].strip().strip('"') for name, place in columns.items()}

    def _add(self, rows: _Rows, cells: Mapping[str, str]) -> None:
        rows.at_s.append(self._arrival_s(cells["arrived_at"]))
        rows.input_tokens.append(self._tokens("input_tokens", cells["input_tokens"], least=0))
        rows.output_tokens.append(self._tokens("output_tokens", cells["output_tokens"], least=0))
        rows.model.append(self._model(cells.get("model", "")))
        rows.session.append(self._session(cells.get("session", "")))
        if len(cells.get("tenant", "")) > MAX_NAME_CHARS:
            raise self._wrong(f"tenant has more than {MAX_NAME_CHARS} characters")

    def _arrival_s(self, text: str) -> float:
        instant = self._instant(text)
        if self._first is None:
            self._first = instant
        if instant.is_date is not self._first.is_date:
            raise self._wrong(f"arrived_at is {text!r}: dates and seconds are mixed in this file")
        at_s = instant.at - self._first.second
        if at_s < self._last:
            raise self._wrong(f"arrived_at is {text!r}, before the row above; sort the file by it")
        if at_s > MAX_SPAN_S:
            raise self._wrong(
                f"arrived_at is {text!r}, {at_s / 86_400:,.0f} days after the first row; "
                f"a trace lasts {MAX_SPAN_S / 86_400:.0f} at most"
            )
        self._last = at_s
        return at_s

    def _instant(self, text: str) -> _Instant:
        try:
            at = float(text)
        except ValueError:
            return _Instant(self._date(text), is_date=True)
        if not math.isfinite(at) or at < 0:
            raise self._wrong(f"arrived_at is {text!r}; it must be finite and not negative")
        return _Instant(at, is_date=False)

    def _date(self, text: str) -> float:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise self._wrong(
                f"arrived_at is {text[:80]!r}; it must be seconds or ISO 8601"
            ) from None
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()

    def _tokens(self, column: str, text: str, least: int) -> int:
        try:
            number = float(text)
            tokens = int(number)
        except (ValueError, OverflowError):
            raise self._wrong(f"{column} is {text[:80]!r}; it must be a whole number") from None
        if tokens != number or not least <= tokens <= MAX_TOKENS:
            raise self._wrong(
                f"{column} is {text[:80]!r}; it must be a whole number, {least} to {MAX_TOKENS:,}"
            )
        return tokens

    def _model(self, text: str) -> int:
        name = text or ONLY_MODEL
        place = self._places.get(name)
        if place is None:
            if len(name) > MAX_NAME_CHARS:
                raise self._wrong(f"model has more than {MAX_NAME_CHARS} characters")
            if len(self.models) >= MAX_MODELS:
                raise self._wrong(f"more than {MAX_MODELS:,} models")
            place = self._places[name] = len(self.models)
            self.models.append(name)
        return place

    def _session(self, text: str) -> int:
        if not text:
            return NO_SESSION
        if len(text) > MAX_NAME_CHARS:
            raise self._wrong(f"session has more than {MAX_NAME_CHARS} characters")
        if text not in self._sessions and len(self._sessions) >= MAX_SESSIONS:
            raise self._wrong(f"more than {MAX_SESSIONS:,} sessions")
        return self._sessions.setdefault(text, len(self._sessions))

    def _wrong(self, what: str) -> TerminalError:
        return TerminalError(f"{self.path}, line {self._line}: {what}")


def write_trace(trace: Trace, path: Path, progress: Callable[[int], None] = lambda _: None) -> int:
    """Write a trace and return its number of rows. Calls `progress` after each block.

    Raises TerminalError if the file cannot be written.
    """
    num_rows = 0
    try:
        with path.open("w", encoding="utf-8") as file:
            file.write("arrived_at,input_tokens,output_tokens,model,session\n")
            for block in trace.blocks:
                file.writelines(_format_lines(block, trace.models))
                num_rows += len(block)
                progress(num_rows)
    except OSError as error:
        raise TerminalError(f"{path} cannot be written: {error.strerror}") from None
    return num_rows


def _format_lines(block: Block, models: list[str]) -> Iterator[str]:
    columns = zip(
        block.at_s.tolist(),
        block.input_tokens.tolist(),
        block.output_tokens.tolist(),
        block.model.tolist(),
        block.session.tolist(),
        strict=True,
    )
    for at_s, input_tokens, output_tokens, model, session in columns:
        shown = "" if session == NO_SESSION else session
        yield f"{at_s!r},{input_tokens},{output_tokens},{models[model]},{shown}\n"
