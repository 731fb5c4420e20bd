"""Records are read by the platform's own APIs, of a town with endpoints of each option."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.cli.declared.rig import ROLE, TownAws, apply
from tests.unit.reconcile.samples import SCOPE, Town

from hostelry.advisor.live.calls import draw_calls
from hostelry.advisor.live.forecast import compare_units
from hostelry.advisor.live.records import LiveRecords
from hostelry.advisor.live.stretch import find_stretch
from hostelry.advisor.mix_file import read_mix
from hostelry.advisor.options import HostingOption as Option
from hostelry.base.errors import TerminalError
from hostelry.cli.live.metric_reading import MODELS, OWN
from hostelry.cli.live.reading import LiveReading, find_period, find_server_mb
from hostelry.cli.live.run import LiveInput, build_report, write_files
from hostelry.cli.live.text import list_lines
from hostelry.domain.metric import Metric, Sample
from hostelry.fleet.shapes import get_shape

SKLEARN = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
SHOP = f"""
models:
  forest: {{Image: "{SKLEARN}", ModelDataUrl: "s3://b/forest.tar.gz"}}
  many: {{Image: "{SKLEARN}", ModelDataUrl: "s3://b/many/", Mode: MultiModel}}
endpoints:
  ded:
    ModelName: forest
    InstanceType: ml.big
    InitialInstanceCount: 2
    Scaling: {{MinCapacity: 1, MaxCapacity: 4, TargetValue: 3}}
  multi: {{ModelName: many, InstanceType: ml.big}}
  fn: {{ModelName: forest, ServerlessConfig: {{MemorySizeInMB: 1024, MaxConcurrency: 4}}}}
  llms:
    InstanceType: ml.big
    Components:
      base:
        Image: djl-inference:0.29.0-lmi
        ArtifactUrl: s3://b/base.tar.gz
        MinMemoryRequiredInMb: 1024
        NumberOfCpuCoresRequired: 2
        Adapters: {{es: s3://b/es.tar.gz}}
  two:
    ProductionVariants:
      - {{VariantName: a, ModelName: forest, InstanceType: ml.big}}
      - {{VariantName: b, ModelName: forest, InstanceType: ml.big}}
"""
NAMES: Mapping[str, Mapping[str, str]] = {
    "base": {"InferenceComponentName": "base"},
    "es": {"InferenceComponentName": "es"},
    **{
        name: {"EndpointName": name, "VariantName": "AllTraffic"}
        for name in ("ded", "multi", "fn", "llms")
    },
}
NUM_MINUTES = 12
TYPE = "ml.m5.xlarge"  # a mix takes no type of the town


class Facts:
    """What control and agents would know."""

    def get_endpoints(self) -> Mapping[str, Any]:
        copy = {"component": "base", "start_s": 5.5, "peak_memory_bytes": None}
        memory = {"component": None, "start_s": 2.5, "memory_bytes": 200 << 20}
        return {
            "llms": {"copies": [{**copy, "memory_bytes": 900 << 20}]},
            "ded": {"copies": [{**memory, "peak_memory_bytes": 250 << 20}]},
            "multi": {"copies": [{**memory, "id": "multi-1", "peak_memory_bytes": None}]},
        }

    def get_target_models(self, endpoint: Any) -> Mapping[str, Any]:
        times = {"disk_bytes": 8 << 20, "load_s": 0.25, "download_s": 0.1}
        loaded = {"target": "a.tar.gz", "loaded": True, "memory_bytes": 64 << 20, **times}
        unused = {"target": "unused.tar.gz", "loaded": False, "memory_bytes": 0, **times}
        return {"multi-1": [loaded, unused]}


def record(aws: TownAws, begins: float) -> None:
    """Twelve minutes of calls, and the fourth one is missing for `base`."""
    samples = []

    def add(namespace: str, name: str, at: float, values: Mapping[float, int], of: str) -> None:
        metric = Metric.of(namespace, name, dict(NAMES[of]))
        samples.append(
            Sample(metric=metric, at=at, values=tuple(values), counts=tuple(values.values()))
        )

    for minute in range(NUM_MINUTES):
        at = begins + 60.0 * minute
        for name in ("base", "es", "ded", "multi", "fn"):
            if (name, minute) == ("base", 3):
                continue
            add(MODELS, "Invocations", at, {1.0: 10}, name)
            add(MODELS, "Invocation5XXErrors", at, {0.0: 9, 1.0: 1}, name)
            add(MODELS, "ModelLatency", at, {40_000.0: 9, 80_000.0: 1}, name)
            add(MODELS, "OverheadLatency", at, {1_000.0: 10}, name)
        for name in ("ded", "multi", "llms"):
            add(OWN, "Instances", at, {2.0: 6}, name)
        add(OWN, "ServerlessMemoryTime", at, {1024.0 * 1000 * 0.5: 1}, "fn")
    add(MODELS, "ModelSetupTime", begins + 300, {900_000.0: 2}, "fn")
    add(MODELS, "ModelLoadingTime", begins + 300, {250_000.0: 3}, "multi")
    for target, num in (("a.tar.gz", 30.0), ("b.tar.gz", 90.0)):
        named = {**NAMES["multi"], "TargetModel": target}
        metric = Metric.of(OWN, "UsageRequests", named)
        at = begins - begins % 300
        samples += [Sample(metric=metric, at=at + 300 * it, values=(num,)) for it in range(3)]
    aws.metrics.emit(SCOPE, samples)


@pytest.fixture(scope="module")
def aws() -> Iterator[TownAws]:
    town = Town()
    aws = TownAws(town)
    apply(aws, SHOP)
    town.clock.advance(NUM_MINUTES * 60 + 30)
    begins = aws.town.clock.now() // 60 * 60 - NUM_MINUTES * 60
    record(aws, begins)
    yield aws
    town.close()


def read(aws: TownAws, *chosen: str) -> LiveRecords:
    now = aws.town.clock.now()
    reading = LiveReading(aws, Facts(), ROLE, lambda _: None)
    return reading.read(chosen, find_period(now - 3600.0, now))


def test_each_option_is_recognised_with_its_models_numbers_and_scaling(aws: TownAws) -> None:
    found = read(aws)
    units = {it.endpoint: it for it in found.units}
    assert {name: it.option for name, it in units.items()} == {
        "ded": Option.DEDICATED,
        "multi": Option.MULTI_MODEL,
        "fn": Option.SERVERLESS,
        "llms": Option.ADAPTERS,
    }
    assert found.left_out == {"two": "it has 2 variants, and one is compared"}
    (ded,) = units["ded"].models
    assert (ded.framework, ded.memory_mb, ded.start_s) == ("sklearn", 250.0, 2.5)
    assert ded.sources["memory_mb"] == "measured: the largest of 1 copies"
    assert (units["ded"].counts, units["ded"].max_instances) == ((2,), 4)
    base, adapter = units["llms"].models
    assert (base.memory_mb, base.cpus, base.concurrency) == (1024.0, 2.0, 2)
    assert (adapter.adapter_of, adapter.artifact) == ("base", "s3://b/es.tar.gz")
    targets = {it.live_name: it for it in units["multi"].models}
    assert list(targets) == ["a.tar.gz", "b.tar.gz", "unused.tar.gz"]
    called = targets["a.tar.gz"]
    assert (called.loaded_mb, called.memory_mb, called.load_s) == (64.0, 200.0, 0.25)
    assert (targets["unused.tar.gz"].memory_mb, targets["unused.tar.gz"].loaded_mb) == (None, None)
    assert targets["b.tar.gz"].artifact == "s3://b/many/b.tar.gz"
    assert sum(units["fn"].gb_s.values()) == pytest.approx(0.5 * (NUM_MINUTES - 1))
    assert sum(units["fn"].starts.values()) == 2


@cases(
    "copies, expected",
    case("one copy", {"a": 200}, 136.0),
    case("the largest of two copies", {"a": 200, "b": 300}, 300.0),
    case("less than its models", {"a": 10}, 0.0),
    case("a copy whose agent did not answer", {"c": 200}, None),
    case("a copy without a measurement", {"a": None}, None),
    case("no copy", {}, None),
)
def test_the_servers_memory_is_a_copys_without_its_loaded_models(
    copies: Mapping[str, int | None], expected: float | None
) -> None:
    models: list[Mapping[str, Any]] = [
        {"loaded": True, "memory_bytes": 64 << 20},
        {"loaded": False, "memory_bytes": 99 << 20},
        {"loaded": True, "memory_bytes": None},
    ]
    facts = [
        {"id": name, "memory_bytes": None if mb is None else mb << 20}
        for name, mb in copies.items()
    ]
    assert find_server_mb(facts, {"a": models, "b": []}) == expected


def test_a_hole_is_named_and_the_first_partial_minute_is_not_used(aws: TownAws) -> None:
    span, notes = find_stretch(read(aws))
    assert span.seconds == (NUM_MINUTES - 4) * 60
    assert any("no records of base from" in it for it in notes)
    alone, _ = find_stretch(read(aws, "ded"))
    assert alone.seconds == (NUM_MINUTES - 1) * 60


def test_the_written_mix_is_read_and_compared(aws: TownAws, tmp_path: Path) -> None:
    found = read(aws)
    units = [
        replace(unit, instance_type=TYPE, shape=get_shape(TYPE)) if unit.instance_type else unit
        for unit in found.units
    ]
    found = replace(found, units=tuple(units))
    span, notes = find_stretch(found)
    live = LiveInput(
        records=found, span=span, notes=notes, calls=draw_calls(found, span), prices=None
    )
    out = tmp_path / "live.toml"
    write_files(live, None, out)
    mix = read_mix(out)
    assert [it.name for it in mix.models][:2] == ["ded", "fn"]
    (called,) = (it for it in mix.models if it.name == "a")
    assert (called.loaded_bytes, called.memory_bytes) == (64 << 20, 200 << 20)
    compared = compare_units(found, span, live.calls, mix)
    assert [it.problem for it in compared] == [None] * 4
    for one in compared:
        assert one.forecast.p50_s == pytest.approx(one.measured.p50_s, rel=0.2)
        assert one.measured.cost is None
    lines = list(list_lines(live, compared, is_same=True))
    assert any(it.startswith("llms: adapters, as it runs now") for it in lines)
    assert any(it.startswith("   cold starts") for it in lines)
    assert any("unknown" in it for it in lines if "cost" in it)
    assert len(build_report(live, compared)["endpoints"]) == 4
    with pytest.raises(TerminalError, match="exists, and may have been edited"):
        write_files(live, None, out)


@cases(
    "chosen, reason",
    case("an unknown endpoint", ["no"], "there is no endpoint no; `hostelry ls`"),
    case("none is left", ["two"], "no endpoint to compare. two: it has 2 variants"),
)
def test_endpoints_that_cannot_be_read_are_errors(
    aws: TownAws, chosen: list[str], reason: str
) -> None:
    with pytest.raises(TerminalError, match=reason):
        read(aws, *chosen)


def test_without_any_record_there_is_an_error(aws: TownAws) -> None:
    reading = LiveReading(aws, Facts(), ROLE, lambda _: None)
    past = aws.town.clock.now() - 7 * 86_400.0
    with pytest.raises(TerminalError, match="no metric has a call or a zero in this time"):
        reading.read([], find_period(past - 3600.0, past))
