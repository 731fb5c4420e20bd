"""This version and the one before understand each other: messages, records, tables, bytes."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.skew.comparison import broken_tables, broken_types
from tests.contract.skew.exchanged import (
    COUNTS,
    FIXED,
    GROWING,
    SAMPLES,
    SESSION,
    tables_now,
    types_now,
)
from tests.contract.skew.record import FOLDER

from hostelry import __version__
from hostelry.base.peers import are_neighbours
from hostelry.dataplane.shared.host_counts import decode_host_counts
from hostelry.dataplane.shared.session_exchange import decode_session
from hostelry.store.schema import SCHEMA_REVISION
from hostelry.store.upgrade import floors

ADVICE = (
    "a version before would not understand it: docs/install.md, Versions that work together. Where"
    " no such version was released yet: python -m tests.contract.skew.record"
)
RECORDED = sorted(it for it in FOLDER.glob("*.json") if are_neighbours(it.stem, __version__))


@pytest.fixture(params=RECORDED, ids=[f"version {it.stem}" for it in RECORDED])
def before(request: pytest.FixtureRequest) -> dict[str, Any]:
    path: Path = request.param
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_there_is_a_version_before() -> None:
    assert RECORDED


def test_messages_and_records_are_understood_in_both_directions(before: dict[str, Any]) -> None:
    assert broken_types(before["types"], types_now()) == [], ADVICE


def test_programs_of_the_version_before_can_use_the_tables(before: dict[str, Any]) -> None:
    now, growing = tables_now(*FIXED), tables_now(GROWING)
    assert broken_tables(before["tables"], now, growing) == [], ADVICE
    assert floors()[SCHEMA_REVISION] <= before["schema"]["revision"], ADVICE


def test_bytes_of_the_version_before_are_read_and_sent(before: dict[str, Any]) -> None:
    sent = {name: base64.b64decode(it) for name, it in before["bytes"].items()}
    assert {it.name: it.encode() for it in SAMPLES} == sent, ADVICE
    assert decode_host_counts(sent["counts of a host"]) == COUNTS
    assert decode_session(sent["a session"]) == SESSION


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def types(*required: str, **fields: Any) -> dict[str, Any]:
    return {"Message": {"type": "object", "properties": fields, "required": list(required)}}


def enum(*values: str) -> dict[str, Any]:
    return {"Status": {"enum": list(values)}}


@cases(
    "before, now, broken",
    case("no change", types("a", a=TEXT), types("a", a=TEXT), []),
    case("a field with a default", types("a", a=TEXT),
        types("a", a=TEXT, b={"default": 0, **NUMBER}), []),
    case("a field without one", types("a", a=TEXT), types("a", "b", a=TEXT, b=NUMBER),
        ["Message.b needs a default: the version before does not send it"]),
    case("a field less", types("a", a=TEXT, b=NUMBER), types("a", a=TEXT),
        ["Message.b is gone, which the version before needs"]),
    case("another type", types("a", a=TEXT), types("a", a=NUMBER),
        ["Message.a was {'type': 'string'}, and is {'type': 'integer'}"]),
    case("a type less", types(a=TEXT), {}, ["Message is gone"]),
    case("a type that refuses more", types(),
        {"Message": {"properties": {}, "additionalProperties": False}},
        ["Message refuses fields that it does not know"]),
    case("other values of an enum, one of which is only read", enum("a", "b"),
        enum("b", "c", "later"), ["Status reads 'a' no more, which the version before sends",
         "Status has 'c', which the version before does not read"]),
)  # fmt: skip
def test_what_a_change_of_messages_breaks(
    before: dict[str, Any], now: dict[str, Any], broken: list[str]
) -> None:
    assert broken_types(before, now, {"Status": frozenset({"later"})}) == broken


@cases(
    "column, is_growing, broken",
    case("a column that may be null", "TEXT null", True, []),
    case("a column with the server's default", "TEXT required default", True, []),
    case("a column that must be given", "TEXT required", True,
        ["t.b is new, and needs a default of the server"]),
    case("a column of a table that no migration changes", "TEXT null", False,
        ["t.b is new, and nothing adds it where the table is"]),
)  # fmt: skip
def test_what_a_change_of_tables_breaks(column: str, is_growing: bool, broken: list[str]) -> None:
    old = {"t": {"a": "BIGINT key"}}
    new = {"t": {"a": "BIGINT key", "b": column}}
    now, growing = ({}, new) if is_growing else (new, {})
    assert broken_tables(old, now, growing) == broken
    assert broken_tables(new, {}, old) == [f"t.b was {column}, and is gone"]
    assert broken_tables(old, {}, {}) == ["the table t is gone"]
