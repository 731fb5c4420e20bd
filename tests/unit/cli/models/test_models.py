"""The files of a LoRA adapter, packed as an archive."""

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.models.adapters import adapter_archive
from hostelry.cli.models.ls import (
    NOTHING,
    ModelRow,
    add_serving,
    in_order,
    listing_lines,
    requests_in_last_minute,
    variants_text,
)
from hostelry.cli.models.scale import (
    CapacityChange,
    SeenCapacity,
    bounds,
    is_there,
    scalable_id,
    tracking_policy,
    trouble,
)
from hostelry.cli.named import NamedModel, NameKind

CONFIG = b'{"peft_type": "LORA", "r": 4}'
COMPONENT = NamedModel(kind=NameKind.COMPONENT, endpoint="shop", component="llama")
ENDPOINT = NamedModel(kind=NameKind.ENDPOINT, endpoint="wine")
KNOWN = {"MinCapacity": 1, "MaxCapacity": 3}
NOW = 1_000.0
LISTED_ENDPOINT = ModelRow(
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


def adapter(folder: Path, **files: bytes) -> Path:
    folder.mkdir()
    for name, content in {"adapter_config.json": CONFIG, **files}.items():
        (folder / name.replace("__", ".")).write_bytes(content)
    return folder


def packed(folder: Path, scratch: Path) -> bytes:
    return Path(adapter_archive(folder, scratch).path).read_bytes()


def names_in(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return opened.getnames()


def test_a_folder_is_packed_without_what_no_server_reads(tmp_path: Path) -> None:
    weights = {"adapter_model__safetensors": b"w", "adapter_model__bin": b"old"}
    folder = adapter(tmp_path / "a", **weights, optimizer__pt=b"large", README__md=b"")
    first = packed(folder, tmp_path)
    assert first == packed(folder, tmp_path), "the same files are the same archive"
    assert names_in(first) == ["adapter_config.json", "adapter_model.safetensors"]
    archive = tmp_path / "b.tar.gz"
    archive.write_bytes(first)
    found = adapter_archive(archive, tmp_path)
    assert (found.path, found.size_bytes) == (str(archive), len(first)), "it is taken as it is"


def test_weights_that_are_a_link_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"1")
    folder = adapter(tmp_path / "a")
    (folder / "adapter_model.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(TerminalError, match="outside the folder"):
        adapter_archive(folder, tmp_path)


def test_other_weights_are_another_archive(tmp_path: Path) -> None:
    one = adapter(tmp_path / "a", adapter_model__bin=b"1")
    two = adapter(tmp_path / "b", adapter_model__bin=b"2")
    assert packed(one, tmp_path) != packed(two, tmp_path)


@cases(
    "files, text",
    case("no weights", {}, "has no adapter_model.safetensors nor"),
    case("weights first", {"adapter_config__json": b"{"}, "has no adapter_model"),
    case("no JSON", {"adapter_config__json": b"{", "adapter_model__bin": b""}, "is not JSON"),
    case(
        "deep nesting",
        {"adapter_config__json": b"[" * 100_000, "adapter_model__bin": b""},
        "is not JSON",
    ),
    case(
        "another kind of adapter",
        {"adapter_config__json": b'{"peft_type": "IA3"}', "adapter_model__bin": b""},
        "peft_type of its adapter_config.json is 'IA3'",
    ),
    case("a list", {"adapter_config__json": b"[]", "adapter_model__bin": b""}, "is None"),
)
def test_what_is_no_adapter_is_refused(files: dict[str, bytes], text: str, tmp_path: Path) -> None:
    given = {name.replace("__", "."): content for name, content in files.items()}
    folder = tmp_path / "a"
    folder.mkdir()
    for name, content in {"adapter_config.json": CONFIG, **given}.items():
        (folder / name).write_bytes(content)
    with pytest.raises(TerminalError, match=text):
        adapter_archive(folder, tmp_path)


@cases(
    "content, text",
    case("no archive", b"hello", "is not a readable archive"),
    case("an empty file", b"", "is not a readable archive"),
    case("an archive of something else", None, "it has no adapter_config.json"),
)
def test_archives_that_are_refused(content: bytes | None, text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    if content is None:
        with tarfile.open(path, "w:gz") as archive:
            archive.addfile(tarfile.TarInfo("other"))
    else:
        path.write_bytes(content)
    with pytest.raises(TerminalError, match=text):
        adapter_archive(path, tmp_path)


@cases(
    "asked, text",
    case("nothing", {}, "give --copies N, or --min"),
    case("a number and bounds", {"copies": 1, "most": 2}, "give one"),
    case("crossed bounds", {"least": 3, "most": 2}, "--min 3 is more than --max 2"),
)
def test_a_change_that_contradicts_itself_is_refused(asked: dict[str, Any], text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        CapacityChange(**asked)


@cases(
    "change, known, found",
    case("both", CapacityChange(least=0, most=4), None, (0, 4)),
    case("one of them stays", CapacityChange(most=9), KNOWN, (1, 9)),
    case("another target alone", CapacityChange(target=2.0), KNOWN, (1, 3)),
)
def test_bounds(change: CapacityChange, known: Any, found: tuple[int, int]) -> None:
    assert tuple(bounds(change, known).values()) == found


@cases(
    "change, known, text",
    case("one is missing", CapacityChange(most=4), None, "give --min and --max"),
    case("the other one crosses", CapacityChange(least=5), KNOWN, "would be 5 to 3"),
)
def test_bounds_that_cannot_be(change: CapacityChange, known: Any, text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        bounds(change, known)


@cases(
    "model, resource, metric",
    case("a component", COMPONENT, "inference-component/llama", "PerCopy"),
    case("a variant", ENDPOINT, "endpoint/wine/variant/A", "PerModel"),
)
def test_targets_and_policies(model: NamedModel, resource: str, metric: str) -> None:
    target = scalable_id(model, "A")
    policy = tracking_policy(target, 2.5)
    assert policy["ResourceId"] == resource
    tracking = policy["TargetTrackingScalingPolicyConfiguration"]
    assert metric in tracking["PredefinedMetricSpecification"]["PredefinedMetricType"]
    assert tracking["TargetValue"] == 2.5


def seen(ready: int, desired: int, status: str = "InService", note: str = "") -> SeenCapacity:
    return SeenCapacity(ready=ready, desired=desired, status=status, note=note or None)


@cases(
    "state, is_reached",
    case("all are ready", seen(2, 2), True),
    case("one is missing", seen(1, 2), False),
    case("still updating", seen(2, 2, "Updating"), False),
    case("as many as before", seen(3, 3), False),
)
def test_copies_are_there(state: SeenCapacity, is_reached: bool) -> None:
    assert is_there(state, 2, 2) is is_reached


@cases(
    "state, unchanged_s, text",
    case("a slow start is none", seen(1, 3), 600.0, None),
    case("it may find room", seen(1, 3, note="no room"), 1.0, None),
    case("no room", seen(1, 3, note="no room"), 15.0, "1 of 3 fit and are ready; .* no room"),
    case("a failure", seen(0, 1, "Failed", "exited"), 0.0, "exited"),
)
def test_trouble(state: SeenCapacity, unchanged_s: float, text: str | None) -> None:
    found = trouble(state, unchanged_s)
    if text is None:
        assert found is None
    else:
        with pytest.raises(TerminalError, match=text):
            raise TerminalError(found)


def test_adapters_are_beneath_their_base_and_bases_beneath_their_endpoint() -> None:
    alone = replace(LISTED_ENDPOINT, name="a", endpoint="a")
    orphan = replace(ADAPTER, name="aaa", base="gone")
    rows = in_order([ADAPTER, orphan, FAILED, BASE, LISTED_ENDPOINT, alone])
    assert [it.name for it in rows] == ["a", "shop", "broken", "llama", "llama-es", "aaa"]


def test_a_row_has_state_copies_requests_and_age() -> None:
    lines = listing_lines([LISTED_ENDPOINT, BASE, ADAPTER], NOW)
    assert [line.split() for line in lines] == [
        ["NAME", "KIND", "STATUS", "READY", "INSTANCES", "REQ/MIN", "AGE"],
        ["shop", "endpoint", "InService", "-", "1", "x", "ml.g5.xlarge", "-", "3m20s"],
        ["llama", "component", "InService", "1/2", "-", "12", "1m40s"],
        ["llama-es", "adapter", "InService", "1/2", "-", "1", "1m40s"],
    ]
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 0, 2, 4]


def test_an_endpoint_that_serves_nothing_has_that_below_its_row() -> None:
    model = replace(LISTED_ENDPOINT, name="all-down", endpoint="all-down", ready=0, desired=300)
    lines = listing_lines(add_serving([LISTED_ENDPOINT, FAILED, ADAPTER, model]), NOW)
    assert [line.strip() for line in lines if "!" in line] == [
        "! serves nothing: 0 of 300 copies ready",
        "! serves in part: 1 of 2 copies ready, 1 of 2 components failed",
        "! exited with 1[2J",
    ]


def test_a_failure_has_a_line_of_its_reason_and_the_servers_last() -> None:
    assert listing_lines([LISTED_ENDPOINT, FAILED], NOW)[-1] == "    ! exited with 1[2J"
    quoted = "It ended. Last log lines: Traceback:\n  File x\nValueError: no such file"
    rows = [LISTED_ENDPOINT, replace(FAILED, reason=quoted)]
    expected = "    ! It ended. Last log line: ValueError: no such file"
    assert listing_lines(rows, NOW)[-1] == expected


def test_many_adapters_are_one_line_but_for_those_that_failed() -> None:
    many = [replace(ADAPTER, name=f"a{number:02}") for number in range(12)]
    bad = replace(ADAPTER, name="bad", status="Failed", reason="no such file")
    rows = [LISTED_ENDPOINT, BASE, *many, bad]
    lines = listing_lines(rows, NOW)
    assert len(lines) == 6
    assert "a00 ... a11 (12)" in lines[3]
    assert lines[3].split()[-2] == "12", "their requests are summed"
    assert lines[-1].endswith("! no such file")
    assert len(listing_lines(rows, NOW, fold=False)) == 17


def test_components_that_were_not_looked_at_are_counted() -> None:
    far = [replace(BASE, kind="unseen", name=f"u{number}", ready=None) for number in range(3)]
    assert "u0 ... u2 (3)" in listing_lines([LISTED_ENDPOINT, *far], NOW)[-1]


def test_without_models_the_way_to_one_is_shown() -> None:
    assert listing_lines([], NOW) == [NOTHING]


@cases(
    "now, requests",
    case("a minute that has just begun", 60.0, 70.0),
    case("half a minute", 90.0, 40.0),
    case("a minute at its end", 119.0, 11.0),
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
