import json
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.jobs.records.object_keys import get_output_uri, get_relative_key, parse_manifest
from hostelry.jobs.records.splitting import RecordError


@cases(
    "prefix, key, output",
    case("a folder", "s3://b/in", "in/sub/x.csv", "s3://o/out/sub/x.csv.out"),
    case("with slash", "s3://b/in/", "in/sub/x.csv", "s3://o/out/sub/x.csv.out"),
    case("begin of a name", "s3://b/in/a", "in/a1.csv", "s3://o/out/a1.csv.out"),
    case("an object", "s3://b/in/x.csv", "in/x.csv", "s3://o/out/x.csv.out"),
    case("a bucket", "s3://b", "in/x.csv", "s3://o/out/in/x.csv.out"),
    case("a bucket with slash", "s3://b/", "x.csv", "s3://o/out/x.csv.out"),
)
def test_an_output_keeps_the_path_below_the_prefix(prefix: str, key: str, output: str) -> None:
    assert get_output_uri("s3://o/out", get_relative_key(prefix, "b", key)) == output


def test_a_manifest_names_objects_below_its_prefix() -> None:
    body = json.dumps([{"prefix": "s3://b/in/"}, "a.csv", "sub/b.csv"]).encode()
    found = parse_manifest(body, "s3://b/m")
    assert [(it.uri, it.relative) for it in found] == [
        ("s3://b/in/a.csv", "a.csv"),
        ("s3://b/in/sub/b.csv", "sub/b.csv"),
    ]


@cases(
    "manifest, named",
    case("a head alone", [{"prefix": "s3://b/in/"}], "names no object"),
    case("no head", ["a.csv"], "does not begin with"),
    case("nothing", [], "does not begin with"),
    case("a path", [{"prefix": "/tmp"}, "a"], "does not begin with"),
    case("a number", [{"prefix": "s3://b/"}, 7], "Entry 2"),
)
def test_a_manifest_that_is_none_is_refused(manifest: Any, named: str) -> None:
    with pytest.raises(RecordError, match=named):
        parse_manifest(json.dumps(manifest).encode(), "s3://b/m")


def test_a_manifest_that_is_no_json_is_refused() -> None:
    with pytest.raises(RecordError, match="is not JSON"):
        parse_manifest(b"[" * 100_000, "s3://b/m")
