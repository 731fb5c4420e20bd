"""Mix files: the example is valid, and every fault names model, field, value, limit and remedy."""

from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.advisor.mix_file import example_text, parse_mix, read_mix
from hostelry.advisor.values import FitAxis, Hardware, LatencyClass
from hostelry.base.errors import TerminalError

PATH = Path("mix.toml")
AXES = "[axes]\ncost = { unacceptable = 2.0, target = 0.1 }\n"
MACHINE = '[[machines]]\ntype = "ml.m5.xlarge"\n'
MODEL = '[[models]]\nname = "a"\nmemory_mb = 100\ntarget_p99_ms = 100\nseconds = 0.1\n'


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
