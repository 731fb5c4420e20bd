"""Detection delay and false alarms of the responsive policy, in simulated time.

The delays and rates of benchmarks/detection_study.py, on fewer draws, with fixed seeds.
"""

import numpy as np
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.scaling.decide.responsive.responsive_load import SERVICE_S, Run, drawn

from hostelry.scaling.decide.responsive.options import ResponsiveOptions

COPIES = 4
USED = 0.7
BEFORE_S = 400


def options(per_s: float, **changes: float) -> ResponsiveOptions:
    """Of which the load uses 70 % on four copies."""
    return ResponsiveOptions(target=per_s * SERVICE_S / USED / COPIES, **changes)  # type: ignore[arg-type]


@cases(
    "per_s, ratio, cv, median_s, p90_s",
    case("four times two calls a second", 2.0, 4.0, 1.0, 3.0, 5.0),
    case("twice eight calls a second", 8.0, 2.0, 1.0, 4.0, 7.0),
    case("four times eight bursty calls a second", 8.0, 4.0, 3.0, 6.0, 12.0),
    case("four times thirty calls a second, in the first", 30.0, 4.0, 1.0, 1.0, 2.0),
)
def test_a_step_is_seen_within_seconds(
    per_s: float, ratio: float, cv: float, median_s: float, p90_s: float
) -> None:
    delays = []
    for seed in range(40):
        seconds = drawn(seed, [(BEFORE_S, per_s), (60, per_s * ratio)], cv)
        run = Run(options=options(per_s), copies=COPIES).see(seconds, follow=False)
        delays.append(next((at + 1 - BEFORE_S for at, _ in run.acts if at >= BEFORE_S), 99))
    assert np.median(delays) <= median_s
    assert np.percentile(delays, 90) <= p90_s


@cases(
    "per_s, cv",
    case("a call every two seconds", 0.5, 1.0),
    case("two calls a second", 2.0, 1.0),
    case("twenty calls a second", 20.0, 1.0),
    case("eight bursty calls a second", 8.0, 3.0),
)
def test_load_that_does_not_change_makes_it_act_at_most_once_an_hour(
    per_s: float, cv: float
) -> None:
    hours = 5
    seconds = drawn(11, [(hours * 3600, per_s)], cv)
    run = Run(options=options(per_s), copies=COPIES).see(seconds, follow=False)
    assert len({at // 60 for at, _ in run.acts}) <= hours


def test_a_lower_wanted_rate_of_false_alarms_gives_fewer_and_later_acts() -> None:
    steady_s = 2 * 3600
    seconds = drawn(3, [(steady_s, 8.0), (60, 16.0)], 3.0)
    eager, calm = (
        Run(options=options(8.0, false_alarms_per_hour=wanted), copies=COPIES)
        .see(seconds, follow=False)
        .acts
        for wanted in (10.0, 0.1)
    )
    assert sum(at < steady_s for at, _ in eager) > sum(at < steady_s for at, _ in calm)
    first = [next((at for at, _ in acts if at >= steady_s), 10**9) for acts in (eager, calm)]
    assert first[0] < first[1]


def test_bursts_that_come_again_and_again_are_learnt() -> None:
    """Ten seconds at twelve times the rate, every five minutes, are no change once learnt."""
    hours = 8
    pieces = [(200.0, 1.0), (10.0, 12.0), (90.0, 1.0)] * (12 * hours)
    run = Run(options=options(1.4), copies=COPIES).see(drawn(5, pieces), follow=False)
    bursts = np.bincount([it // 12 for it in {at // 300 for at, _ in run.acts}], minlength=hours)
    assert bursts[0] > 2
    assert sum(bursts[-4:]) <= 4


@cases(
    "pieces, acts",
    case("a doubling that the capacity carries", [(400, 1.0), (200, 2.2)], False),
    case("a rise to more than it carries", [(400, 1.0), (200, 8.0)], True),
    case("a fall", [(400, 3.0), (200, 0.5)], False),
    case(
        "a slow rise to more than it carries, without any step",
        [*((60, 1.0 + 0.3 * it) for it in range(20)), (200, 7.0)],
        True,
    ),
)
def test_a_change_of_arrivals_alone_is_no_reason(
    pieces: list[tuple[float, float]], acts: bool
) -> None:
    copies_carry_per_s = 5.0
    target = copies_carry_per_s * SERVICE_S / COPIES
    run = Run(options=ResponsiveOptions(target=target), copies=COPIES)
    assert bool(run.see(drawn(1, pieces)).acts) is acts


def test_calls_that_take_longer_are_seen_by_what_is_under_way() -> None:
    before = drawn(4, [(400, 4.0)], service_s=2.0)
    after = drawn(4, [(400, 4.0)], service_s=12.0)
    later = [replace(it, second=it.second + 400) for it in after]
    run = Run(options=ResponsiveOptions(target=5.0), copies=COPIES)
    run.see(before)
    assert not run.acts
    run.see(later)
    assert run.copies * 5.0 >= 4.0 * 10.0
    assert "calls under way" in run.acts[0][1].reason
