"""Verdicts on a new version: what the evidence allows to say, and how often it is wrong."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from hostelry.comparison.verdict import Allowance, Evidence, Outcome, compared
from hostelry.domain.distribution import Distribution
from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.scope import Scope

KEY = LoadKey(scope=Scope("123456789012", "us-west-2"), endpoint_name="e", variant_name="v")


def latencies(values: Sequence[float]) -> Distribution:
    counts = Counter(values)
    ordered = sorted(counts)
    return Distribution(values=tuple(ordered), counts=tuple(counts[it] for it in ordered))


def evidence(finished: int, errors: int = 0, slower: float = 1.0) -> Evidence:
    """Answers of 10 to 19 ms, times `slower`."""
    values = [round((10_000 + 100 * (it % 100)) * slower) for it in range(finished)]
    return Evidence(finished=finished, errors=errors, latency_us=latencies(values))


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        pytest.param(Evidence(), Evidence(), Outcome.UNDECIDED, id="nothing yet"),
        pytest.param(evidence(10_000), evidence(50), Outcome.UNDECIDED, id="few requests"),
        pytest.param(evidence(10_000), evidence(10_000), Outcome.NO_WORSE, id="the same"),
        pytest.param(evidence(10_000), evidence(20, 10), Outcome.WORSE, id="errors in 20"),
        pytest.param(evidence(10_000, 500), evidence(10_000, 500), Outcome.UNDECIDED, id="both"),
        pytest.param(
            evidence(40_000, 400), evidence(40_000, 400), Outcome.NO_WORSE, id="both, for long"
        ),
        pytest.param(evidence(10_000), evidence(300, 0, 1.6), Outcome.WORSE, id="slower"),
        pytest.param(
            evidence(10_000, 400),
            evidence(10_000, 0, 0.5),
            Outcome.NO_WORSE,
            id="better",
        ),
        pytest.param(evidence(0), evidence(500, 500), Outcome.UNDECIDED, id="no old one"),
    ],
)
def test_the_outcome_follows_from_the_bounds(
    old: Evidence, new: Evidence, outcome: Outcome
) -> None:
    assert compared(old, new, Allowance()).outcome is outcome


def test_seconds_add_up() -> None:
    load = SecondLoad(
        key=KEY,
        second=1,
        finished=3,
        errors_5xx=1,
        broken_streams=1,
        model_latency_us=latencies([5.0, 7.0]),
    )
    found = Evidence().plus(load).plus(load)
    assert (found.finished, found.errors) == (6, 4)
    assert found.latency_us.counts == (2, 2)


def test_a_version_that_is_no_worse_is_seldom_called_worse_at_any_look() -> None:
    random, allowance, called = Random(3), Allowance(alpha=0.1), Counter[Outcome]()
    for _ in range(60):
        old = new = Evidence()
        outcome = Outcome.UNDECIDED
        for _ in range(40):
            old, new = (drawn(it, random, 0.001) for it in (old, new))
            outcome = compared(old, new, allowance).outcome
            if outcome is not Outcome.UNDECIDED:
                break
        called[outcome] += 1
    assert called[Outcome.WORSE] <= 6
    assert called[Outcome.NO_WORSE] > 0


def drawn(so_far: Evidence, random: Random, errors: float) -> Evidence:
    values = [float(round(random.lognormvariate(9, 0.3), -2)) for _ in range(100)]
    load = SecondLoad(
        key=KEY,
        second=0,
        finished=100,
        errors_5xx=sum(random.random() < errors for _ in range(100)),
        model_latency_us=latencies(values),
    )
    return so_far.plus(load)
