"""Verdicts on a new version: the conclusions that the evidence allows, and their error rates."""

from collections import Counter
from collections.abc import Sequence
from random import Random

from tests.cases import case, cases

from hostelry.comparison.verdict import VersionEvidence, VersionOutcome, compare_versions
from hostelry.domain.load import EMPTY, Distribution, Divergence, LoadKey, SecondLoad
from hostelry.domain.scope import Scope
from hostelry.domain.traffic import Allowance

KEY = LoadKey(scope=Scope("123456789012", "us-west-2"), endpoint_name="e", variant_name="v")


def latencies(values: Sequence[float]) -> Distribution:
    counts = Counter(values)
    ordered = sorted(counts)
    return Distribution(values=tuple(ordered), counts=tuple(counts[it] for it in ordered))


def evidence(finished: int, errors: int = 0, slower: float = 1.0) -> VersionEvidence:
    """Answers of 10 to 19 ms, times `slower`."""
    values = [round((10_000 + 100 * (it % 100)) * slower) for it in range(finished)]
    return VersionEvidence(finished=finished, errors=errors, latency_us=latencies(values))


@cases(
    "old, new, outcome",
    case("nothing yet", VersionEvidence(), VersionEvidence(), VersionOutcome.UNDECIDED),
    case("few requests", evidence(10_000), evidence(50), VersionOutcome.UNDECIDED),
    case("the same", evidence(10_000), evidence(10_000), VersionOutcome.NO_WORSE),
    case("errors in 20", evidence(10_000), evidence(20, 10), VersionOutcome.WORSE),
    case("both", evidence(10_000, 500), evidence(10_000, 500), VersionOutcome.UNDECIDED),
    case("both, for long", evidence(40_000, 400), evidence(40_000, 400), VersionOutcome.NO_WORSE),
    case("slower", evidence(10_000), evidence(300, 0, 1.6), VersionOutcome.WORSE),
    case("better", evidence(10_000, 400), evidence(10_000, 0, 0.5), VersionOutcome.NO_WORSE),
    case("no old one", evidence(0), evidence(500, 500), VersionOutcome.UNDECIDED),
)
def test_the_outcome_follows_from_the_bounds(
    old: VersionEvidence, new: VersionEvidence, outcome: VersionOutcome
) -> None:
    assert compare_versions(old, new, Allowance()).outcome is outcome


def test_seconds_add_up() -> None:
    load = SecondLoad(
        key=KEY,
        second=1,
        finished=3,
        errors_5xx=1,
        broken_streams=1,
        model_latency_us=latencies([5.0, 7.0]),
    )
    found = VersionEvidence().plus(load).plus(load)
    assert (found.finished, found.errors) == (6, 4)
    assert found.latency_us.counts == (2, 2)


def test_a_version_that_is_no_worse_is_seldom_called_worse_at_any_look() -> None:
    random, allowance, called = Random(3), Allowance(alpha=0.1), Counter[VersionOutcome]()
    for _ in range(60):
        old = new = VersionEvidence()
        outcome = VersionOutcome.UNDECIDED
        for _ in range(40):
            old, new = (drawn(it, random, 0.001) for it in (old, new))
            outcome = compare_versions(old, new, allowance).outcome
            if outcome is not VersionOutcome.UNDECIDED:
                break
        called[outcome] += 1
    assert called[VersionOutcome.WORSE] <= 6
    assert called[VersionOutcome.NO_WORSE] > 0


def drawn(so_far: VersionEvidence, random: Random, errors: float) -> VersionEvidence:
    values = [float(round(random.lognormvariate(9, 0.3), -2)) for _ in range(100)]
    load = SecondLoad(
        key=KEY,
        second=0,
        finished=100,
        errors_5xx=sum(random.random() < errors for _ in range(100)),
        model_latency_us=latencies(values),
    )
    return so_far.plus(load)


@cases(
    "pairs, close, allowed, outcome, verdict",
    case("no answers, any allowed", 0, 0, None, None, VersionOutcome.NO_WORSE),
    case("all differ, as they may", 500, 0, None, None, VersionOutcome.NO_WORSE),
    case("no answers yet", 0, 0, 0.1, VersionOutcome.UNDECIDED, VersionOutcome.UNDECIDED),
    case("few answers", 20, 20, 0.1, VersionOutcome.UNDECIDED, VersionOutcome.UNDECIDED),
    case("few", 500, 495, 0.1, VersionOutcome.NO_WORSE, VersionOutcome.NO_WORSE),
    case("many differ", 500, 350, 0.1, VersionOutcome.WORSE, VersionOutcome.WORSE),
    case("all may", 500, 0, 1.0, VersionOutcome.NO_WORSE, VersionOutcome.NO_WORSE),
)
def test_answers_that_differ_count_where_a_share_is_allowed(
    pairs: int,
    close: int,
    allowed: float | None,
    outcome: VersionOutcome | None,
    verdict: VersionOutcome,
) -> None:
    apart = Distribution(values=(0.0, 2e5), counts=(close, pairs - close)) if pairs else EMPTY
    seen = Divergence(pairs=pairs, exact=close, close=close, distance_millionths=apart)
    same = evidence(10_000)
    found = compare_versions(same, same, Allowance(divergence=allowed), seen)
    assert found.outcome is verdict
    assert (found.divergence is None) == (not pairs and allowed is None)
    if found.divergence is not None:
        assert found.divergence.outcome is outcome
        assert found.divergence.median_millionths == (2e5 if close < pairs / 2 else 0.0)
