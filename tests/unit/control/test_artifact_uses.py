"""Addresses and models anywhere in records are found. The lock of uploads excludes others."""

from pathlib import Path

import msgspec
import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.control.usage_routes import find_address_uses, find_addresses, find_model_uses
from hostelry.domain.scope import Scope
from hostelry.home.home import Home
from hostelry.home.upload_lock import removing, uploading
from hostelry.store.protocol import Key, Record

HERE = Scope("111122223333", "us-east-1")


def record(kind: str, name: str, value: object) -> Record:
    key = Key(kind=kind, scope=HERE, name=name)
    return Record(key=key, body=msgspec.json.encode(value), version=1)


@cases(
    "text, found",
    case("an address", "s3://b/k", ["s3://b/k"]),
    case("a bucket", "s3://b", ["s3://b"]),
    case("addresses in a variable's JSON", '{"a": "s3://b/k", "c": "s3://b/l"}',
        ["s3://b/k", "s3://b/l"]),
    case("addresses in a command line", "--model s3://b/k,s3://b/l;s3://b/m",
        ["s3://b/k", "s3://b/l", "s3://b/m"]),
    case("a web address of S3", "https://bkt.s3.us-east-1.amazonaws.com/k", ["s3://bkt/k"]),
    case("the bucket in the path", "https://s3.amazonaws.com/b/k", ["s3://b/k"]),
    case("another web address", "https://example.com/k", []),
    case("the beginning alone", "s3://", []),
    case("an address twice", "s3://b/k s3://b/k", ["s3://b/k"] * 2),
    case("no text", "", []),
)  # fmt: skip
def test_addresses_are_found_in_any_text(text: str, found: list[str]) -> None:
    assert list(find_addresses(text)) == found


def test_a_record_names_what_is_anywhere_in_it() -> None:
    before = {"bake": {"before": {"variants": [{"model": {"uri": "s3://b/old"}}]}}}
    records = [
        record("endpoint", "e", before),
        record("component", "c", {"previous_spec": {"uri": "s3://b/old"}}),
        record("tags", "t", {"s3://b/key": "no address"}),
        record("copy", "x", {}),
    ]
    assert find_address_uses(records) == {
        "s3://b/key": ["tags t"],
        "s3://b/old": ["endpoint e", "component c"],
    }


def test_a_model_is_used_by_what_names_it_other_than_itself() -> None:
    records = [
        record("model", "m", {"name": "m"}),
        record("component", "c", {"given": {"ModelName": "m"}}),
        record("component", "d", {"given": {"ModelName": "m-2"}}),
        record("schedule", "s", {"input": '{"ModelName": "n"}'}),
        record("schedule", "t", {"input": r'{"body": "{\"ModelName\": \"n\"}"}'}),
    ]
    uses = {"m": ["component c"], "n": ["schedule s", "schedule t"]}
    assert find_model_uses(records, {"m", "n", "o"}) == uses


def test_nothing_is_removed_while_something_is_uploaded(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with (
        uploading(home),
        uploading(home),
        pytest.raises(TerminalError, match="is under way, and may need"),
        removing(home),
    ):
        raise AssertionError("an upload may need what is there")
    with removing(home):
        pass
