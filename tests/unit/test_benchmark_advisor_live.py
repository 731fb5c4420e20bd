"""The advisor's benchmark against live runs: its draws, forecasts and aims, without a platform."""

import random

import numpy as np
import pytest
from benchmarks.advisor_adapters import AdapterRequest, add_spread
from benchmarks.advisor_adapters import forecast as forecast_adapters
from benchmarks.advisor_live import (
    LASTS_S,
    OPTIONS,
    LiveFigures,
    build_failed_row,
    build_live_plan,
    build_row,
    describe_row,
    draw_calls,
    draw_live_mix,
    forecast,
    list_live_findings,
)
from tests.cases import case, cases

from hostelry.advisor.gates import check_gates
from hostelry.advisor.options import HostingOption as Option
from hostelry.sim.service import Measured, ServiceModel

SERVICE = ServiceModel(
    prefill_s=0.01,
    prefill_s_per_token=0.0001,
    token_s=0.002,
    max_concurrency=8,
    slowdown=((1, 1.0), (8, 2.0)),
)


def test_a_seed_gives_one_mix_that_every_option_can_host() -> None:
    mix = draw_live_mix(random.Random(7), 3)
    assert mix == draw_live_mix(random.Random(7), 3)
    for option in OPTIONS:
        assert check_gates(option, mix.models, mix).is_open, option


@cases("option", *(case(it.value, it) for it in OPTIONS))
def test_a_forecast_is_of_the_calls_that_are_sent(option: Option) -> None:
    mix = draw_live_mix(random.Random(7), 3)
    calls = draw_calls(mix)
    found = forecast(build_live_plan(option, mix), mix, calls)
    num = sum(len(it.at_s) for it in calls.values())
    assert num == pytest.approx(sum(it.traffic.per_hour for it in mix.models) / 360, rel=0.5)
    assert found.calls_per_s == pytest.approx(num / LASTS_S, rel=0.1)
    assert found.cost > 0
    assert found.failed == pytest.approx(0.0, abs=0.1)
    times = [it.service.prefill_s for it in mix.models]
    assert min(times) <= found.p50_s <= found.p99_s


def test_first_tokens_of_adapters_are_simulated_on_one_copy() -> None:
    source = random.Random(1)
    requests = [
        AdapterRequest(0.02 * place, f"a{source.randrange(100)}", 20, 8) for place in range(400)
    ]
    found = forecast_adapters(SERVICE, requests, mean_tokens=40)
    alone_s = SERVICE.first_work_s(40)
    assert found.calls_per_s == pytest.approx(40.0, rel=0.05)
    assert alone_s <= found.p50_s < 2 * alone_s
    assert found.p50_s <= found.p99_s


def test_the_spread_is_of_first_tokens_alone() -> None:
    first_s = SERVICE.first_work_s(40)
    measured = [
        Measured(input_tokens=40, output_tokens=8, first_s=first_s * factor, last_s=1.0)
        for factor in np.linspace(0.5, 2.5, 21)
    ]
    found = add_spread(SERVICE, measured)
    assert (found.spread[0][0], found.spread[-1][0]) == (0.0, 1.0)
    assert found.spread[0][1] == pytest.approx(0.5)
    assert found.spread[-1][1] == pytest.approx(2.5)


def test_the_aims_count_mixes_and_name_the_worst() -> None:
    measured = LiveFigures(calls_per_s=10.0, cost=1.0, p50_s=0.1, p99_s=0.2)
    near = LiveFigures(calls_per_s=10.2, cost=1.05, p50_s=0.11, p99_s=0.24)
    far = LiveFigures(calls_per_s=9.0, cost=0.0, p50_s=0.1, p99_s=0.1)
    rows = [
        build_row(it, "dedicated", 2, 100, one, measured) for it, one in (("a", near), ("b", far))
    ]
    found = {it.what: it for it in list_live_findings(rows)}
    assert found["throughput: share of mixes within 5% of the measured"].value == 0.5
    assert found["throughput: worst forecast / measured"].value == 0.9
    assert found["p50: share of mixes within 15% of the measured"].verdict == "met"
    assert found["p99: worst forecast / measured"].value == 0.5
    failed = build_failed_row("c", "dedicated", RuntimeError("it is Failed"))
    assert "failed: it is Failed" in describe_row(failed, 2, 3)
    shares = [it for it in list_live_findings([*rows, failed]) if "share" in it.what]
    assert [it.value for it in shares] == pytest.approx([1 / 3, 1 / 3, 2 / 3, 1 / 3])
