"""Results of the routing simulation that hold on any machine: the gateway's choices, seeded."""

from statistics import mean

import pytest
from benchmarks.gateway_hosts import STRATEGIES as LATE_STRATEGIES
from benchmarks.gateway_hosts import Case, Gateways
from benchmarks.routing_simulation import STRATEGIES, Simulated, Simulation, highest_rate
from benchmarks.routing_trace import Fleet, arrivals

FLEET = Fleet()


def run(strategy: str, share: float = 0.6, num_workers: int = 1) -> Simulated:
    simulation = Simulation(FLEET, strategy, seed=1, num_workers=num_workers)
    return simulation.run(share * FLEET.capacity_per_s, 6000, seed=2)


def test_p99_is_thirty_percent_under_randoms_and_below_least_outstandings() -> None:
    at_random, least, aware = (run(strategy) for strategy in STRATEGIES)
    assert aware.p99_ms <= 0.7 * at_random.p99_ms
    assert aware.p99_ms <= least.p99_ms
    assert aware.hit_rate > least.hit_rate + 0.15


def test_copies_that_never_idle_answer_fifteen_percent_more() -> None:
    at_random, _, aware = (
        Simulation(FLEET, strategy, seed=1).run_closed(64, 6000, seed=2) for strategy in STRATEGIES
    )
    assert aware.per_s >= 1.15 * at_random.per_s


@pytest.mark.parametrize("num_workers", [2, 4])
def test_several_workers_find_most_adapters_that_one_finds(num_workers: int) -> None:
    assert (
        run(STRATEGIES[-1], num_workers=num_workers).hit_rate > run(STRATEGIES[-1]).hit_rate - 0.1
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_seed_gives_the_same_run_again(strategy: str) -> None:
    assert run(strategy) == run(strategy)


def test_requests_are_the_same_at_every_rate() -> None:
    slow, fast = (list(arrivals(FLEET, per_s, 50, seed=3)) for per_s in (10.0, 100.0))
    works = [[(it.adapter, it.service_ms) for it in requests] for requests in (slow, fast)]
    assert works[0] == works[1]
    assert slow[-1].at_ms == pytest.approx(10 * fast[-1].at_ms)


def test_the_highest_rate_is_found_from_below() -> None:
    def rising(per_s: float) -> Simulated:
        return Simulated(p50_ms=1.0, p99_ms=per_s, per_s=per_s, hit_rate=1.0)

    found = highest_rate(rising, limit_ms=300.0, most_per_s=1000.0)
    assert 290.0 <= found <= 300.0


@pytest.mark.parametrize("num_gateways", [2, 8])
def test_late_counts_with_shares_are_nearer_to_exact_ones_than_own_counts(
    num_gateways: int,
) -> None:
    case = Case(tail="exponential", num_gateways=num_gateways, num_copies=100, load=0.8)
    means = {it.name: mean(Gateways(case, it, 7).run(6000)) for it in LATE_STRATEGIES}
    assert means["exact"] < means["sent 50 ms, shares"] < means["sent 50 ms"] < means["own only"]
    assert means["sent 50 ms, shares"] < means["own only"] / 3
