"""The chain of records: each edit is found, with its place."""

from collections.abc import Callable

import msgspec
import pytest
from tests.cases import case, cases
from tests.unit.audit.samples import KEY, chain

from hostelry.audit.chain import (
    ChainHead,
    SealedFile,
    TrailAnchor,
    derive_key,
    get_digest,
    is_authentic,
    parse_line,
    read_value,
    sign_value,
)
from hostelry.audit.check import ChainCheck

FORGED = derive_key("another key")
Lines = list[bytes]
Edit = Callable[[Lines], Lines]


def check(
    lines: Lines, noted: tuple[ChainHead, ...] = (), anchor: TrailAnchor | None = None
) -> ChainCheck:
    found = ChainCheck(KEY, anchor, noted)
    found.begin_file()
    for number, line in enumerate(lines, start=1):
        found.take(line, f"file:{number}")
    found.finish()
    return found


def made(count: int = 6, key: bytes = KEY) -> Lines:
    return [it.line for it in chain(count, key=key)]


def replaced(lines: Lines, number: int, line: bytes) -> Lines:
    return [*lines[: number - 1], line, *lines[number:]]


def edited(lines: Lines, number: int) -> Lines:
    return replaced(lines, number, lines[number - 1].replace(b"Made", b"Gone"))


def moved(lines: Lines, number: int, to: int) -> Lines:
    rest = [*lines[: number - 1], *lines[number:]]
    return [*rest[: to - 1], lines[number - 1], *rest[to - 1 :]]


def forge_next(lines: Lines) -> Lines:
    return [*lines, chain(1, ChainHead(6, get_digest(lines[5])), FORGED)[0].line]


def renumber(lines: Lines, number: int) -> Lines:
    line = lines[2].replace(b'"number":3', b'"number":%d' % number)
    return replaced(lines, 3, line)


ALL_EDITED = [f"edited file:{it}" for it in range(1, 7)]


@cases(
    "edit, found",
    case("nothing", lambda it: it, []),
    case("a member of a record", lambda it: edited(it, 3), ["edited file:3"]),
    case("members of all records", lambda it: [a.replace(b"Ma", b"To") for a in it], ALL_EDITED),
    case("the last record", lambda it: edited(it, 6), ["edited file:6"]),
    case("a record is removed", lambda it: it[:2] + it[3:], ["removed file:3"]),
    case("some records are removed", lambda it: it[:1] + it[4:], ["removed file:2"]),
    case("the first records are removed", lambda it: it[2:], ["removed file:1"]),
    case("a record is repeated", lambda it: it[:3] + it[2:], ["repeated file:4"]),
    case("an early record is repeated at the end", lambda it: [*it, it[0]], ["repeated file:7"]),
    case("two records are exchanged", lambda it: moved(it, 3, 4), ["reordered file:4"]),
    case("a record is moved to the end", lambda it: moved(it, 2, 6), ["reordered file:6"]),
    case("the end is cut", lambda it: it[:4], ["cut after record 4"]),
    case("all records are gone", lambda _: [], ["cut after record 0"]),
    case("a line is no record", lambda it: replaced(it, 2, b"{}"),
        ["unreadable file:2", "removed file:3"]),
    case("a line is no text", lambda it: [*it, b"\xff"], ["unreadable file:7"]),
    case("a record of another key is added", forge_next, ["edited file:7"]),
    case("all are made again without the key", lambda _: made(key=FORGED), ALL_EDITED),
    case("a number is changed", lambda it: renumber(it, 9), ["edited file:3", "removed file:4"]),
    case("a number becomes huge", lambda it: renumber(it, 10**12),
        ["edited file:3", "removed file:4"]),
    case("the MAC is cut off", lambda it: replaced(it, 3, it[2][:-74] + b"}"), ["edited file:3"]),
)  # fmt: skip
def test_an_edit_is_found_at_its_place(edit: Edit, found: list[str]) -> None:
    head = chain(6)[-1].head
    shown = [f"{it.kind} {it.place}" for it in check(edit(made()), (head,)).problems]
    assert shown == found


def test_a_record_that_the_platform_wrote_after_another_record_is_found() -> None:
    fork = [it.line for it in chain(1, ChainHead(4, "0" * 64))]
    (problem,) = check(made(4) + fork).problems
    assert (problem.kind, problem.place) == ("edited", "file:5")
    assert problem.text == "record 5 was written after another record 4"


def test_a_head_that_was_noted_elsewhere_must_be_in_the_trail() -> None:
    (problem,) = check(made(), (ChainHead(3, "f" * 64),)).problems
    assert problem.text == "record 3 is another one than was noted elsewhere"


def test_records_before_the_anchor_may_be_missing() -> None:
    whole = chain(6)
    anchor = TrailAnchor(head=whole[2].head, removed_at=1.0, reason="old")
    lines = [it.line for it in whole]
    assert check(lines[3:], (whole[5].head,), anchor).problems == []
    assert check(lines, (), anchor).problems == [], "a file that is being removed"
    (problem,) = check(lines[4:], (), anchor).problems
    assert (problem.kind, problem.text) == ("removed", "record 4 is missing before")


def test_a_sealed_file_is_the_one_that_was_sealed() -> None:
    whole = chain(3)
    lines = [it.line for it in whole]
    seal = SealedFile(
        first=1,
        head=whole[2].head,
        digest=get_digest(b"".join(it + b"\n" for it in lines)),
        num_bytes=1,
        since=0.0,
        until=1.0,
        sources=(),
        accounts=None,
    )
    sealed = sign_value(KEY, seal)
    assert check([*lines, sealed]).problems == []
    (problem,) = check([*lines[:2], sealed]).problems
    assert problem.text == "the file is not the one that was sealed with records 1 to 3"
    forged = sign_value(FORGED, seal)
    assert "MAC" in check([*lines, forged]).problems[0].text
    as_anchor = sign_value(KEY, TrailAnchor(head=whole[2].head, removed_at=1.0, reason=""))
    assert "it is a TrailAnchor" in check([*lines, as_anchor]).problems[0].text


def test_a_line_has_the_record_and_is_signed() -> None:
    line = chain(2)[1].line
    record = parse_line(line)
    assert (record.number, record.previous) == (2, get_digest(chain(1)[0].line))
    assert bytes(record.event) == b'{"eventName":"Made2"}'
    assert is_authentic(KEY, line)
    assert not is_authentic(FORGED, line)
    assert not is_authentic(KEY, b"")
    assert msgspec.json.decode(line)["mac"] == line[-66:-2].decode()


def test_a_value_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="it is a ChainHead"):
        read_value(KEY, sign_value(KEY, ChainHead(1, "x")), TrailAnchor)
