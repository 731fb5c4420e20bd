"""Whole advice on tiny mixes: every option is simulated, repeats itself, and says what binds it."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.advisor.mixes import (
    AXES,
    MACHINE,
    SERVICE,
    TRAFFIC,
    build_mix,
    build_model,
    build_models,
    build_traffic,
)

from hostelry.advisor.advice import advise
from hostelry.advisor.axes import AxisValue
from hostelry.advisor.gates import check_gates
from hostelry.advisor.options import HostingOption as Option
from hostelry.advisor.plans import plan_option
from hostelry.advisor.runs import MAX_ENDPOINTS, find_obstacle
from hostelry.advisor.traffic import load_traffic
from hostelry.advisor.trials import OptionTrial, run_trial
from hostelry.advisor.values import (
    AxisAnchors,
    FitAxis,
    FitMix,
    FitModel,
    LatencyClass,
    ModelTraffic,
    NumberSource,
)
from hostelry.base.errors import TerminalError
from hostelry.sim.service import default_service

LATER: dict[str, Any] = {"latency_class": LatencyClass.OFFLINE, "target_p99_s": 86_400.0}


def try_option(option: Option, *models: FitModel, seed: int = 1, **changes: float) -> OptionTrial:
    """One trial of an option whose gates are open."""
    mix = build_mix(*models, **changes)
    assert check_gates(option, models, mix).is_open
    traffic = build_traffic(mix)
    return run_trial(plan_option(option, models, mix, traffic), mix, traffic, seed)


@cases(
    "option",
    case("dedicated", Option.DEDICATED),
    case("components", Option.COMPONENTS),
    case("multi-model", Option.MULTI_MODEL),
    case("multi-container", Option.MULTI_CONTAINER),
    case("serverless", Option.SERVERLESS),
)
def test_an_option_answers_light_traffic_and_repeats_itself(option: Option) -> None:
    models = build_models(3)
    first = try_option(option, *models, serverless_price=1e-5)
    assert first.num_answered == first.num_calls > 100
    assert first.met_share > 0.9
    assert first.cost is not None and first.cost > 0.0  # noqa: PT018 - one statement for mypy
    assert try_option(option, *models, serverless_price=1e-5) == first
    assert try_option(option, *models, seed=2, serverless_price=1e-5) != first


def test_instances_are_paid_while_they_are_idle() -> None:
    models = build_models(3)
    dedicated, shared = (
        try_option(option, *models) for option in (Option.DEDICATED, Option.MULTI_CONTAINER)
    )
    assert dedicated.instance_h == pytest.approx(0.3)
    assert shared.instance_h == pytest.approx(0.1)
    assert dedicated.cost == pytest.approx(0.3 * 0.2 / dedicated.num_answered * 1000)


def test_a_queue_scales_from_zero_and_answers_everything() -> None:
    model = build_model(**LATER, traffic=replace(TRAFFIC, per_hour=3600.0))
    found = try_option(Option.ASYNCHRONOUS, model, hours=0.5)
    assert found.num_answered == found.num_calls
    assert found.met_share == 1.0


def test_a_batch_answers_after_its_hour_and_costs_its_job_alone() -> None:
    found = try_option(Option.BATCH, build_model(**LATER), batch_hour=2.0)
    assert found.p50_s is not None and found.p50_s > 1.8 * 3600  # noqa: PT018 - for mypy
    # 60 calls of 0.05 s on 4 slots, after the starts of an instance and of a copy.
    assert found.instance_h == pytest.approx((6.0 + 0.75) / 3600, rel=0.2)


def test_cold_models_cost_latency() -> None:
    models = build_models(20, memory_bytes=2 * 2**30, load_s=2.0)
    found = try_option(Option.MULTI_MODEL, *models, hours=0.1)
    assert found.hit_rate is not None and 0.1 < found.hit_rate < 0.9  # noqa: PT018 - for mypy
    assert found.met_share < 0.95
    small = [replace(it, loaded_bytes=2**26) for it in models]
    found = try_option(Option.MULTI_MODEL, *small, hours=0.1)
    assert found.hit_rate is not None and found.hit_rate > 0.9  # noqa: PT018 - for mypy


def test_new_capacity_after_a_step_is_timed() -> None:
    busy = build_model(
        traffic=replace(TRAFFIC, per_hour=18_000.0), service=replace(SERVICE, prefill_s=0.4)
    )
    found = try_option(Option.DEDICATED, busy, hours=0.05)
    assert 5.0 < found.scale_s < 300.0
    light = try_option(Option.DEDICATED, build_model())
    assert light.scale_s == 0.0


@cases(
    "option, price, num, expected",
    case("the most that are simulated", Option.DEDICATED, 0.2, MAX_ENDPOINTS, None),
    case(
        "one more, with its cost", Option.DEDICATED, 0.2, 301, "cost at least 60.2 an hour. Divide"
    ),
    case("no price", Option.DEDICATED, None, 301, "with the square of their number. Divide"),
    case("queues can be at zero", Option.ASYNCHRONOUS, 0.2, 1000, "it has 1,000 endpoints, and"),
    case("batches are arithmetic", Option.BATCH, 0.2, 1000, None),
    case("a shared endpoint", Option.MULTI_MODEL, 0.2, 1000, None),
)
def test_many_endpoints_are_left_out_and_named(
    option: Option, price: float | None, num: int, expected: str | None
) -> None:
    models = [build_model(f"m-{it}", **LATER) for it in range(num)]
    machine = replace(MACHINE, price_per_hour=price, most=5000)
    mix = replace(build_mix(*models), machines=(machine,))
    obstacle = find_obstacle(plan_option(option, models, mix, build_traffic(mix)))
    assert (expected is None) == (obstacle is None)
    assert expected is None or expected in str(obstacle)


def test_adapters_share_their_base() -> None:
    base = build_model("base", traffic=replace(TRAFFIC, per_hour=0.0))
    adapters = [build_model(f"a-{it}", adapter_of="base") for it in range(5)]
    found = try_option(Option.ADAPTERS, base, *adapters)
    assert found.instance_h == pytest.approx(0.1)
    assert found.met_share == 1.0


def advise_mix(mix: FitMix) -> tuple[dict[Option, dict[FitAxis, AxisValue]], str, Option | None]:
    """The axes of each option, the sensitivity, and the pick of a mix with one group."""
    (advice,) = advise(mix, build_traffic(mix))
    axes = {option: dict(it.axes) for option, it in advice.simulated.items()}
    pick = advice.ranking.pick
    return axes, advice.ranking.sensitivity, None if pick is None else pick.option


def test_every_axis_has_its_source_and_spread() -> None:
    axes, sensitivity, pick = advise_mix(build_mix(*build_models(3)))
    assert pick is not None
    assert sensitivity
    dedicated = axes[Option.DEDICATED]
    assert list(dedicated) == list(FitAxis)
    assert dedicated[FitAxis.LATENCY].source is NumberSource.SIMULATED
    assert dedicated[FitAxis.LATENCY].inputs == "service times measured 2026-11-22"
    assert dedicated[FitAxis.OPERATIONS].source is NumberSource.COUNTED
    cost = dedicated[FitAxis.COST]
    assert cost.low is not None and cost.raw is not None  # noqa: PT018 - for mypy
    assert cost.low < cost.raw


def test_assumed_service_times_are_named() -> None:
    mix = build_mix(build_model(is_measured=False, service_origin="assumed"))
    axes, _, _ = advise_mix(mix)
    assert axes[Option.DEDICATED][FitAxis.LATENCY].is_assumed
    assert not axes[Option.DEDICATED][FitAxis.OPERATIONS].is_assumed


def test_an_unknown_price_is_never_zero() -> None:
    mix = build_mix(build_model(), machines=(replace(MACHINE, price_per_hour=None),))
    (advice,) = advise(mix, build_traffic(mix))
    assert advice.ranking.pick is None
    assert advice.not_simulated[Option.DEDICATED] == "its cost is unknown"


def test_a_target_that_nothing_meets_gives_no_pick() -> None:
    hard = {**AXES, FitAxis.LATENCY: AxisAnchors(unacceptable=0.5, target=0.99)}
    mix = build_mix(build_model(target_p99_s=0.001), axes=hard)
    (advice,) = advise(mix, build_traffic(mix))
    assert advice.ranking.pick is None
    assert all(FitAxis.LATENCY in it.unacceptable for it in advice.ranking.ranked)


def test_overload_is_reported() -> None:
    heavy = build_model(
        service=replace(SERVICE, prefill_s=300.0), traffic=ModelTraffic(per_hour=3600.0)
    )
    mix = build_mix(heavy, machines=(replace(MACHINE, most=1),))
    (advice,) = advise(mix, build_traffic(mix))
    assert "it cannot carry the calls" in advice.refused[Option.DEDICATED][0]


def test_a_calibration_of_one_copy_is_not_stretched_over_a_shared_container() -> None:
    models = build_models(2, service=default_service(), is_calibrated=True)
    mix = build_mix(*models)
    (advice,) = advise(mix, build_traffic(mix))
    assert "the calibration of m-0" in advice.not_simulated[Option.MULTI_MODEL]
    assert Option.DEDICATED in advice.simulated


def test_models_with_different_labels_never_share() -> None:
    models = (build_model("a", isolation_label="phi"), build_model("b"))
    mix = build_mix(*models)
    groups = [it.group for it in advise(mix, build_traffic(mix))]
    assert [it.name for it in groups] == ["mix", "mix-2"]
    assert "isolation phi" in groups[0].why


class TestTraces:
    HEADER = "arrived_at,input_tokens,output_tokens,model\n"

    def load(self, path: Path, text: str, **of: str) -> tuple[int, tuple[str, ...]]:
        path.write_text(text)
        traffic = ModelTraffic(trace=path, trace_model=of.get("model"))
        mix = build_mix(build_model(traffic=traffic), hours=4.0)
        found, notes = load_traffic(mix)
        return round(found.rate(mix.models[0]) * 4 * 3600), notes

    def test_rows_of_the_model_within_the_period_count(self, tmp_path: Path) -> None:
        rows = "".join(f"{it * 10},1,1,{'ab'[it % 2]}\n" for it in range(3000))
        num, notes = self.load(tmp_path / "t.csv", self.HEADER + rows, model="a")
        assert num == 720
        assert notes == ()

    def test_a_hole_is_reported(self, tmp_path: Path) -> None:
        rows = "".join(f"{it},1,1,a\n" for it in (*range(0, 3600, 10), *range(12_000, 14_400, 10)))
        _, notes = self.load(tmp_path / "t.csv", self.HEADER + rows)
        assert notes[0].startswith("t.csv has no call for 2.3 h from hour 1.0 on.")

    @cases(
        "text, message",
        case("a missing cell", "0,1,1,a\n1,1\n", "line 3"),
        case("an unknown model", "0,1,1,b\n", "has no such rows in the period; it has b"),
    )
    def test_faults(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(TerminalError, match=message):
            self.load(tmp_path / "t.csv", self.HEADER + text, model="a")

    @cases(
        "num, per_hour, remedy",
        case("exactly a tenth", 1, 1e7, "set hours to 0.1 or less"),
        case("rounded down", 1, 6e6, "set hours to 0.16 or less"),
        case("less than the shortest time", 3, 1e7, "are simulated: give fewer calls"),
    )
    def test_too_many_calls_are_refused_with_the_remedy(
        self, num: int, per_hour: float, remedy: str
    ) -> None:
        traffic = ModelTraffic(per_hour=per_hour)
        mix = build_mix(*build_models(num, traffic=traffic), hours=1.0)
        with pytest.raises(TerminalError, match=re.escape(remedy)):
            load_traffic(mix)

    def test_no_call_at_all_is_refused(self) -> None:
        mix = build_mix(build_model(traffic=ModelTraffic()))
        with pytest.raises(TerminalError, match="no model gets a call"):
            load_traffic(mix)
