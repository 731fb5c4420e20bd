"""Groups: models that must be apart are apart, and models that peak at other times together."""

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.advisor.mixes import MACHINE, build_mix, build_model, build_traffic

from hostelry.advisor.grouping import group_models
from hostelry.advisor.values import (
    GIB,
    MIB,
    FitModel,
    Hardware,
    LatencyClass,
    ModelTraffic,
)
from hostelry.domain.shape import Shape


def list_groups(*models: FitModel, splits: bool = True, **changes: float) -> list[list[str]]:
    mix = build_mix(*models, **changes)
    groups = group_models(mix, build_traffic(mix), splits=splits)
    return [[it.name for it in one.models] for one in groups]


ONE = build_model("a")


@cases(
    "other, splits, together",
    case("alike", build_model("b"), True, True),
    case("another label", build_model("b", isolation_label="phi"), False, False),
    case("another class", build_model("b", latency_class=LatencyClass.SOON), False, False),
    case("other hardware", build_model("b", hardware=Hardware.ACCELERATOR), False, False),
    case("another framework", build_model("b", framework="triton"), False, True),
    case("another framework, split", build_model("b", framework="triton"), True, False),
    case("ten times the size", build_model("b", memory_bytes=2000 * MIB), True, True),
    case("more than that", build_model("b", memory_bytes=2001 * MIB), True, False),
    case("no room on one instance", build_model("b", memory_bytes=1900 * MIB), True, True),
)
def test_pairs(other: FitModel, splits: bool, together: bool) -> None:
    assert (len(list_groups(ONE, other, splits=splits)) == 1) is together


def test_models_that_peak_at_other_times_come_together() -> None:
    by_hour = {"asia": 4.0, "east": 4.0, "europe": 16.0, "west": 16.0}
    models = [
        build_model(
            name,
            memory_bytes=6 * GIB,
            traffic=ModelTraffic(per_hour=1000.0, peak_hour=hour, peak_to_mean=2.0),
        )
        for name, hour in by_hour.items()
    ]
    groups = list_groups(*models, hours=24.0)
    assert sorted(map(sorted, groups)) == [["asia", "europe"], ["east", "west"]] or sorted(
        map(sorted, groups)
    ) == [["asia", "west"], ["east", "europe"]]


def test_load_divides_models_that_would_fit() -> None:
    busy = ModelTraffic(per_hour=3600.0 * 40)  # 2 requests in progress each, 4 CPUs
    models = [build_model(f"m-{it}", traffic=busy) for it in range(3)]
    assert len(list_groups(*models)) == 3


def test_a_model_that_fits_nowhere_has_its_own_group() -> None:
    large = build_model("large", memory_bytes=20 * GIB)
    machine = replace(MACHINE, shape=Shape(cpus=4, memory_bytes=16 * GIB))
    mix = build_mix(ONE, large, machines=(machine,))
    groups = group_models(mix, build_traffic(mix), splits=True)
    assert sorted(it.name for one in groups for it in one.models) == ["a", "large"]


def test_adapters_are_with_their_base() -> None:
    adapter = build_model("es", adapter_of="a", memory_bytes=2 * MIB, framework="lora")
    assert list_groups(ONE, adapter, build_model("b")) == [["a", "es", "b"]]


def test_peaks_are_counted() -> None:
    mix = build_mix(ONE, build_model("b"))
    (group,) = group_models(mix, build_traffic(mix))
    assert group.peak == group.sum_of_peaks > 0.0
    assert group.name == "mix"
