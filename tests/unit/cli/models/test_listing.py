"""The lines of `hostelry ls`."""

from dataclasses import replace

import pytest

from hostelry.cli.models.ls import (
    NOTHING,
    ModelRow,
    in_order,
    listing_lines,
    requests_in_last_minute,
    variants_text,
    with_serving,
)

NOW = 1_000.0
ENDPOINT = ModelRow(
    kind="endpoint",
    name="shop",
    endpoint="shop",
    status="InService",
    instances="1 x ml.g5.xlarge",
    created_at=NOW - 200,
)
BASE = ModelRow(
    kind="component",
    name="llama",
    endpoint="shop",
    status="InService",
    ready=1,
    desired=2,
    requests_last_minute=12.4,
    created_at=NOW - 100,
)
ADAPTER = replace(BASE, kind="adapter", name="llama-es", base="llama", requests_last_minute=1.0)
FAILED = replace(BASE, name="broken", status="Failed", reason="\nexited with 1\x1b[2J\nmore")


def test_adapters_are_beneath_their_base_and_bases_beneath_their_endpoint() -> None:
    alone = replace(ENDPOINT, name="a", endpoint="a")
    orphan = replace(ADAPTER, name="aaa", base="gone")
    rows = in_order([ADAPTER, orphan, FAILED, BASE, ENDPOINT, alone])
    assert [it.name for it in rows] == ["a", "shop", "broken", "llama", "llama-es", "aaa"]


def test_a_row_has_state_copies_requests_and_age() -> None:
    lines = listing_lines([ENDPOINT, BASE, ADAPTER], NOW)
    assert [line.split() for line in lines] == [
        ["NAME", "KIND", "STATUS", "READY", "INSTANCES", "REQ/MIN", "AGE"],
        ["shop", "endpoint", "InService", "-", "1", "x", "ml.g5.xlarge", "-", "3m20s"],
        ["llama", "component", "InService", "1/2", "-", "12", "1m40s"],
        ["llama-es", "adapter", "InService", "1/2", "-", "1", "1m40s"],
    ]
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 0, 2, 4]


def test_an_endpoint_that_serves_nothing_has_that_below_its_row() -> None:
    model = replace(ENDPOINT, name="all-down", endpoint="all-down", ready=0, desired=300)
    lines = listing_lines(with_serving([ENDPOINT, FAILED, ADAPTER, model]), NOW)
    assert [line.strip() for line in lines if "!" in line] == [
        "! serves nothing: 0 of 300 copies ready",
        "! serves in part: 1 of 2 copies ready, 1 of 2 components failed",
        "! exited with 1[2J",
    ]


def test_a_failure_has_a_line_of_its_reason_and_the_servers_last() -> None:
    assert listing_lines([ENDPOINT, FAILED], NOW)[-1] == "    ! exited with 1[2J"
    quoted = "It ended. Last log lines: Traceback:\n  File x\nValueError: no such file"
    rows = [ENDPOINT, replace(FAILED, reason=quoted)]
    expected = "    ! It ended. Last log line: ValueError: no such file"
    assert listing_lines(rows, NOW)[-1] == expected


def test_many_adapters_are_one_line_but_for_those_that_failed() -> None:
    many = [replace(ADAPTER, name=f"a{number:02}") for number in range(12)]
    bad = replace(ADAPTER, name="bad", status="Failed", reason="no such file")
    rows = [ENDPOINT, BASE, *many, bad]
    lines = listing_lines(rows, NOW)
    assert len(lines) == 6
    assert "a00 ... a11 (12)" in lines[3]
    assert lines[3].split()[-2] == "12", "their requests are summed"
    assert lines[-1].endswith("! no such file")
    assert len(listing_lines(rows, NOW, fold=False)) == 17


def test_components_that_were_not_looked_at_are_counted() -> None:
    far = [replace(BASE, kind="unseen", name=f"u{number}", ready=None) for number in range(3)]
    assert "u0 ... u2 (3)" in listing_lines([ENDPOINT, *far], NOW)[-1]


def test_without_models_the_way_to_one_is_shown() -> None:
    assert listing_lines([], NOW) == [NOTHING]


@pytest.mark.parametrize(
    ("now", "requests"),
    [
        pytest.param(60.0, 70.0, id="a minute that has just begun"),
        pytest.param(90.0, 40.0, id="half a minute"),
        pytest.param(119.0, 11.0, id="a minute at its end"),
    ],
)
def test_requests_of_the_last_minute_slide(now: float, requests: float) -> None:
    assert requests_in_last_minute(60.0, 10.0, now) == pytest.approx(requests)


def test_instances_are_counted_by_type() -> None:
    variants: list[dict[str, object]] = [
        {"VariantName": "a", "CurrentInstanceCount": 2},
        {"VariantName": "b", "DesiredInstanceCount": 1},
        {"VariantName": "c"},
    ]
    types = {"a": "ml.m5.large", "b": "ml.m5.large", "c": "serverless"}
    assert variants_text(variants, types) == "3 x ml.m5.large, serverless"
