"""Mix files: the example is valid, and every fault names model, field, value, limit and remedy."""

from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.advisor.mix_file import example_text, parse_mix, read_mix
from hostelry.advisor.values import FitAxis, Hardware, LatencyClass, format_limit
from hostelry.base.errors import TerminalError

PATH = Path("mix.toml")
AXES = "[axes]\ncost = { unacceptable = 2.0, target = 0.1 }\n"
MACHINE = '[[machines]]\ntype = "ml.m5.xlarge"\n'
MODEL = '[[models]]\nname = "a"\nmemory_mb = 100\ntarget_p99_ms = 100\nseconds = 0.1\n'
ADAPTER = MODEL.replace('"a"', '"x"') + 'adapter_of = "a"\n'
OTHER = MODEL.replace('"a"', '"b"') + ADAPTER.replace('"a"', '"b"').replace('"x"', '"y"')
POINT = "[[platform.adapter_throughput]]\nrank = 16\nadapters = 4\ntokens_per_s = 9.5\n"


def point_text(point: str = POINT, models: str = MODEL + ADAPTER) -> str:
    return mix_text(model=models + point)


def mix_text(*, axes: str = AXES, machine: str = MACHINE, model: str = MODEL, top: str = "") -> str:
    return f'name = "mix"\n{top}\n{axes}\n{machine}\n{model}'


def test_the_example_is_valid_and_names_every_field() -> None:
    mix = parse_mix(example_text(), PATH)
    assert [it.name for it in mix.models[:2]] == ["prices-0001", "prices-0002"]
    assert mix.models[0].artifact == "s3://models/prices/prices-0001.tar.gz"
    assert mix.models[0].traffic.per_hour > mix.models[1].traffic.per_hour
    assert sum(it.traffic.per_hour for it in mix.models) == pytest.approx(3000.0)
    assert mix.machines[1].shape.cpus == 8.0
    assert mix.models[0].is_measured
    assert mix.models[0].held_bytes < mix.models[0].memory_bytes


def test_what_a_file_leaves_out_has_the_usual_value() -> None:
    mix = parse_mix(mix_text(), PATH)
    (model,) = mix.models
    assert model.hardware is Hardware.CPU
    assert model.latency_class is LatencyClass.INTERACTIVE
    assert not model.is_measured
    assert model.held_bytes == model.memory_bytes
    assert mix.machines[0].price_per_hour is None
    assert mix.machines[0].shape.cpus == 4
    assert mix.axes[FitAxis.LATENCY].target == 0.99


@cases(
    "text, message",
    case("not TOML", "name = ", "is not TOML"),
    case("nothing", "", "lacks the field `name`"),
    case("no models", mix_text(model=""), "lacks the field `models`"),
    case("an empty list", mix_text(top="models = []", model=""), "models is empty: add a"),
    case("no cost", mix_text(axes="[axes]\n"), "axes lacks the field `cost`"),
    case("an unknown field", mix_text(model=MODEL + "colour = 1"), "'a': has the unknown field"),
    case("NaN", mix_text(model=MODEL + "cpus = nan"), "model 'a': cpus is nan; it must be"),
    case("infinity", mix_text(model=MODEL + "max_s = inf"), "model 'a': max_s is inf"),
    case("a negative number", mix_text(model=MODEL + "cpus = -1.0"), "model 'a': cpus is -1.0: "),
    case("a huge number", mix_text(model=MODEL + "payload_mb = 1e300"), "payload_mb is 1e+300"),
    case("a wrong type", mix_text(model=MODEL + 'cpus = "4"'), "cpus is '4': expected `float`"),
    case("a bad class", mix_text(model=MODEL + 'latency_class = "now"'), "latency_class is 'now'"),
    case("a bad name", mix_text(model=MODEL.replace('"a"', '"a/b"')), "name is 'a/b'"),
    case("a spread that ends early", mix_text(model=MODEL + "spread = [[0.0, 1.0], [0.9, 2.0]]"),
         "(0.9, 2.0)); its shares must go from 0 to 1"),
    case("a spread that falls", mix_text(model=MODEL + "spread = [[0.0, 2.0], [1.0, 1.0]]"),
         "factors must not fall"),
    case("a spread that begins with 0", mix_text(model=MODEL + "spread = [[0.0, 0.0], [1.0, 1.0]]"),
         "it must be above 0"),
    case("no service", mix_text(model=MODEL.replace("seconds = 0.1", "")), "one of seconds and"),
    case("both services", mix_text(model=MODEL + 'calibration = "x"'), "one of seconds and"),
    case("an absent calibration",
         mix_text(model=MODEL.replace("seconds = 0.1", 'calibration = "x.json"')),
         "x.json cannot be read"),
    case("GPU without a number", mix_text(model=MODEL + 'hardware = "accelerator"'),
         "accelerators is 0 with hardware accelerator"),
    case("CPU with GPUs", mix_text(model=MODEL + "accelerators = 1"), "hardware is cpu, and"),
    case("an unknown machine", mix_text(machine='[[machines]]\ntype = "ml.no.thing"\n'),
         "machine 'ml.no.thing': has an unknown type: give its cpus"),
    case("a price below zero", mix_text(machine=MACHINE + "price_per_hour = -0.1\n"),
         "machine 'ml.m5.xlarge': price_per_hour is -0.1"),
    case("two seeds", mix_text(top="seeds = [1, 2]"), "seeds has 2; give 3 to 50"),
    case("the same seed", mix_text(top="seeds = [1, 1, 2]"), "seeds names one twice"),
    case("equal names", mix_text(model=MODEL + MODEL), "models has two with the name 'a'"),
    case("equal machines", mix_text(machine=MACHINE + MACHINE), "machines has two with the type"),
    case("a target that is worse",
         mix_text(axes="[axes]\ncost = { unacceptable = 0.1, target = 2.0 }\n"),
         "axes.cost has the target 2; it must be below unacceptable (0.1)"),
    case("equal anchors", mix_text(axes="[axes]\ncost = { unacceptable = 1, target = 1 }\n"),
         "they must differ"),
    case("no base", mix_text(model=MODEL + 'adapter_of = "b"'), "adapter_of is 'b', no model"),
    case("an unknown zone", mix_text(model=MODEL + 'traffic = { time_zone = "Mars/Base" }'),
         "traffic.time_zone is 'Mars/Base'"),
    case("a zone that is a path", mix_text(model=MODEL + 'traffic = { time_zone = "../../etc" }'),
         "traffic.time_zone is"),
    case("trace and rate", mix_text(model=MODEL + 'traffic = { trace = "a", per_hour = 1 }'),
         "has a trace and per_hour"),
    case("a rank of a model that is no adapter", mix_text(model=MODEL + "adapter_rank = 8"),
         "model 'a': adapter_rank is 8 without adapter_of; name the base"),
    case("a rank of 0", mix_text(model=MODEL + ADAPTER + "adapter_rank = 0"), "adapter_rank is 0"),
    case("a huge rank", point_text(POINT.replace("16", "1" + "0" * 30)), "rank is 1000"),
    case("no rank", point_text(POINT.replace("rank = 16", "")), "lacks the field `rank`"),
    case("a rank that is no number", point_text(POINT.replace("16", '"16"')), "rank is '16'"),
    case("no adapters", point_text(POINT.replace("= 4", "= 0")), "adapters is 0: expected `int`"),
    case("half an adapter", point_text(POINT.replace("= 4", "= 0.5")), "adapters is 0.5"),
    case("no throughput", point_text(POINT.replace("9.5", "0.0")), "tokens_per_s is 0.0"),
    case("a negative throughput", point_text(POINT.replace("9.5", "-1")), "tokens_per_s is -1"),
    case("a throughput without an end", point_text(POINT.replace("9.5", "inf")), "is inf; it must"),
    case("a throughput that is NaN", point_text(POINT.replace("9.5", "nan")), "is nan; it must"),
    case("a throughput above all bounds", point_text(POINT.replace("9.5", "1e300")), "is 1e+300"),
    case("a point with another field", point_text(POINT + "p99 = 1"), "unknown field `p99`"),
    case("a table in place of a list",
         mix_text(top="[platform]\nadapter_throughput = 1\n"), "adapter_throughput is 1"),
    case("the same point twice", point_text(POINT + POINT.replace("9.5", "9.6")),
         "adapter_throughput.1 is the second for 4 adapters of rank 16 on a: remove one"),
    case("the same point twice, once with its base", point_text(POINT + POINT + 'base = "a"'),
         "adapter_throughput.1 is the second"),
    case("a point without an adapter", point_text(models=MODEL), "no model has adapter_of. Remove"),
    case("a base without adapters", point_text(POINT + 'base = "x"'),
         "base is 'x', which has no adapters; name one of a"),
    case("a point for one of two bases", point_text(models=MODEL + ADAPTER + OTHER),
         "has no base, and 2 models have adapters (a, b): name one"),
    case("too many points", point_text(POINT * 1001), "has 1,001 points; at most 1,000"),
    case("too many hours", mix_text(top="hours = 100.0", model=MODEL + "count = 1000"),
         "hours is 100, times 1,000 models; at most 1,000 are simulated: set hours to 1"),
    case("too many models", mix_text(model=(MODEL + "count = 5000\n")
         + (MODEL + "count = 5000").replace('"a"', '"b"')), "models are 10,000; at most 5,000"),
)  # fmt: skip
def test_a_fault_names_its_place(text: str, message: str) -> None:
    with pytest.raises(TerminalError) as caught:
        parse_mix(text, PATH)
    assert str(caught.value).startswith("mix.toml")
    assert message in str(caught.value)


def test_measured_points_have_their_base_and_adapters_their_rank() -> None:
    named = POINT + 'base = "b"\n'
    models = MODEL + ADAPTER + "adapter_rank = 8\n" + OTHER
    mix = parse_mix(point_text(named + named.replace("= 4", "= 5"), models), PATH)
    (first, second) = mix.adapter_throughput
    assert (first.base, first.rank, first.adapters, first.tokens_per_s) == ("b", 16, 4, 9.5)
    assert second.adapters == 5
    assert [it.adapter_rank for it in mix.models] == [None, 8, None, None]
    (alone,) = parse_mix(point_text(), PATH).adapter_throughput
    assert alone.base == "a"


def test_the_hours_of_an_advice_are_accepted() -> None:
    for num in range(1, 5001):
        limit = 1000.0 / num
        assert float(format_limit(limit)) * num <= 1000.0
        assert float(format_limit(limit)) >= 0.9 * limit


def test_a_thousand_models_are_one_table() -> None:
    mix = parse_mix(mix_text(top="hours = 1.0", model=MODEL + "count = 1000"), PATH)
    assert len(mix.models) == 1000


def test_a_file_that_is_no_text_or_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mix.toml"
    with pytest.raises(TerminalError, match="cannot be read"):
        read_mix(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(TerminalError, match="not UTF-8"):
        read_mix(path)
    path.write_bytes(b"#" * (8 * 2**20 + 1))
    for endless in (path, Path("/dev/zero")):
        with pytest.raises(TerminalError, match="more than"):
            read_mix(endless)
