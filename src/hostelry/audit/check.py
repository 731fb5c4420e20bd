"""Verification of the trail's chain: which records were edited, removed, repeated or cut. Pure."""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from hostelry.audit.chain import (
    SEAL_START,
    ChainHead,
    SealedFile,
    TrailAnchor,
    get_digest,
    is_authentic,
    parse_line,
    read_value,
)

MAX_PROBLEMS = 1000  # further ones are counted
UNKNOWN = ""  # the digest of a line that was edited


class ChainProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A place of the trail that is not as it was written: a file with a line, or a row.

    `kind` is one of edited, removed, repeated, reordered, cut, unreadable.
    """

    kind: str
    place: str
    text: str


class _Gap(msgspec.Struct, frozen=True):
    """Records that were skipped, and the place of the record after them."""

    first: int
    last: int
    place: str


class ChainCheck:
    """Checks a trail's lines, oldest first: `take` for each, `begin_file` before each file.

    Args:
        key: the trail's key.
        anchor: the end of the records that retention removed. None if it removed none.
        noted: heads of the chain as they were noted elsewhere.
    """

    def __init__(
        self, key: bytes, anchor: TrailAnchor | None, noted: Sequence[ChainHead] = ()
    ) -> None:
        self.problems: list[ChainProblem] = []
        self.num_problems = self.num_records = self.num_seals = 0
        self.head = self._oldest = anchor.head if anchor is not None else ChainHead()
        self._key = key
        self._noted: Mapping[int, str] = {it.number: it.digest for it in noted if it.number}
        self._gaps: list[_Gap] = []
        self._file_digest = hashlib.sha256()

    def begin_file(self) -> None:
        """Note that the next line is the first of a file."""
        self._file_digest = hashlib.sha256()

    def take(self, line: bytes, place: str) -> None:
        """Check the next line."""
        if line.startswith(SEAL_START):
            self._take_seal(line, place)
            return
        self._file_digest.update(line + b"\n")
        try:
            record = parse_line(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._add("unreadable", place, f"no record can be read: {error}")
            return
        self.num_records += 1
        number, last = record.number, self.head
        if not is_authentic(self._key, line):
            self._add("edited", place, f"record {number} is not as the platform wrote it")
            if number == last.number + 1:
                self.head = ChainHead(number, UNKNOWN)
        elif number <= last.number:
            self._take_earlier(number, place)
        else:
            self._take_next(number, record.previous, get_digest(line), place)

    def finish(self) -> None:
        """Report records that are missing within the trail or at its end."""
        for gap in self._gaps:
            self._add("removed", gap.place, f"{_name_records(gap.first, gap.last)} missing before")
        newest = max(self._noted, default=0)
        if newest > self.head.number:
            names = _name_records(self.head.number + 1, newest)
            self._add("cut", f"after record {self.head.number}", f"{names} missing at the end")

    def _take_next(self, number: int, previous: str, digest: str, place: str) -> None:
        last = self.head
        if number > last.number + 1:
            self._gaps.append(_Gap(last.number + 1, number - 1, place))
        elif last.digest not in (previous, UNKNOWN):
            text = f"record {number} was written after another record {number - 1}"
            self._add("edited", place, text)
        if self._noted.get(number, digest) != digest:
            self._add("edited", place, f"record {number} is another one than was noted elsewhere")
        self.head = ChainHead(number, digest)

    def _take_earlier(self, number: int, place: str) -> None:
        if number <= self._oldest.number:
            return  # retention has not removed the file yet
        for at, gap in enumerate(self._gaps):
            if gap.first <= number <= gap.last:
                rest = (_Gap(gap.first, number - 1, gap.place), _Gap(number + 1, gap.last, place))
                self._gaps[at : at + 1] = [it for it in rest if it.first <= it.last]
                text = f"record {number} comes after record {self.head.number}"
                self._add("reordered", place, text)
                return
        self._add("repeated", place, f"record {number} comes again")

    def _take_seal(self, line: bytes, place: str) -> None:
        self.num_seals += 1
        try:
            seal: SealedFile = read_value(self._key, line, SealedFile)
        except (ValueError, msgspec.MsgspecError) as error:
            self._add("edited", place, f"the seal is not as the platform wrote it: {error}")
            return
        if seal.digest != self._file_digest.hexdigest():
            names = f"records {seal.first} to {seal.head.number}"
            self._add("edited", place, f"the file is not the one that was sealed with {names}")

    def _add(self, kind: str, place: str, text: str) -> None:
        self.num_problems += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(ChainProblem(kind=kind, place=place, text=text))


def _name_records(first: int, last: int) -> str:
    return f"record {first} is" if first == last else f"records {first} to {last} are"
