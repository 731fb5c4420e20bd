"""Verdicts on the new fleet of an update, step by step."""

import re
from collections import Counter

import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.comparison.fleet_verdict import (
    WARM_UP_S,
    FleetEvidence,
    WatchedUpdate,
    add_old_second,
    add_step_second,
    step_verdict,
)
from hostelry.comparison.verdict import VersionEvidence, VersionOutcome
from hostelry.domain.load import ConfigLoad, Distribution
from hostelry.domain.scope import Scope
from hostelry.domain.traffic import Allowance, build_allowance

UPDATE = WatchedUpdate(
    scope=Scope("123456789012", "us-west-2"),
    endpoint_name="e",
    generation=7,
    variants=("A",),
    old_config="c1",
    new_config="c2",
    began_at=100.0,
    since=200.5,
    is_trial=False,
    num_steps=2,
    allowance=Allowance(),
)
WORSE, NO_WORSE, UNDECIDED = (
    VersionOutcome.WORSE,
    VersionOutcome.NO_WORSE,
    VersionOutcome.UNDECIDED,
)
NONE = VersionEvidence()


def requests(finished: int, errors: int = 0, slower: float = 1.0) -> VersionEvidence:
    """Answers of 10 to 19 ms, times `slower`."""
    counts = Counter(round((10_000 + 100 * (it % 100)) * slower) for it in range(finished))
    values = sorted(counts)
    seen = Distribution(values=tuple(values), counts=tuple(counts[it] for it in values))
    return VersionEvidence(finished=finished, errors=errors, latency_us=seen)


GOOD = FleetEvidence(old=requests(20_000), new=requests(5_000))
BAD = FleetEvidence(old=requests(2_000, 2), new=requests(200, 40))


@cases(
    "update, evidence, outcome, text",
    case("nothing", UPDATE, {}, UNDECIDED, "undecided after 0 requests, none of the"),
    case(
        "few requests",
        UPDATE,
        {"A": FleetEvidence(old=requests(900, 1), new=requests(812, 2))},
        UNDECIDED,
        "undecided after 812 requests, errors 0.25 % against 0.11 %",
    ),
    case(
        "a good one",
        UPDATE,
        {"A": GOOD},
        NO_WORSE,
        "no worse after 5000 requests, errors 0 % against 0 %",
    ),
    case(
        "errors", UPDATE, {"A": BAD}, WORSE, "worse after 200 requests, errors 20 % against 0.1 %"
    ),
    case(
        "slower",
        UPDATE,
        {"A": FleetEvidence(old=requests(2_000), new=requests(2_000, 0, 2.0))},
        WORSE,
        "worse after 2000 requests, latency p50 29.8 ms against 14.9 ms",
    ),
    case(
        "one of two variants",
        replace(UPDATE, variants=("A", "B")),
        {"A": GOOD, "B": BAD},
        WORSE,
        "worse after 5200 requests, errors 20 %",
    ),
    case(
        "one variant without requests",
        replace(UPDATE, variants=("A", "B")),
        {"A": GOOD},
        UNDECIDED,
        "undecided after 5000 requests, none of the old fleet",
    ),
    case("no variant", replace(UPDATE, variants=()), {"A": BAD}, UNDECIDED, "undecided after 0"),
    case(
        "on trial, against the old fleet's before",
        replace(UPDATE, is_trial=True),
        {"A": FleetEvidence(old_of_update=requests(2_000, 2), new=requests(200, 40))},
        WORSE,
        "worse after 200 requests, errors",
    ),
    case(
        "in a step only requests of the step",
        UPDATE,
        {"A": FleetEvidence(old_of_update=requests(2_000, 2), new=requests(200, 40))},
        UNDECIDED,
        "undecided after 200 requests, none",
    ),
)
def test_a_step_is_decided_by_its_requests(
    update: WatchedUpdate,
    evidence: dict[str, FleetEvidence],
    outcome: VersionOutcome,
    text: str,
) -> None:
    found = step_verdict(update, evidence)
    assert found.outcome is outcome
    assert found.text.startswith(text), found.text
    assert (found.generation, found.since) == (7, 200.5)
    assert (found.failure is None) == (outcome is not WORSE)


def test_the_reason_names_measure_values_bounds_and_alpha() -> None:
    failure = step_verdict(UPDATE, {"A": BAD}).failure or ""
    assert re.match(
        r"The new fleet of variant A is worse than the old one: errors 20 % \(from 9\.\d+ % to"
        r" 3\d\.\d+ %\) of 200 requests, against 0\.1 % \(from 0 % to 0\.\d+ %\) of 2000; 1 % of"
        r" the requests more is allowed, with alpha 0\.01\.",
        failure,
    ), failure


def test_alpha_is_shared_out_over_the_steps() -> None:
    close = {"A": FleetEvidence(old=requests(2_000), new=requests(100, 12))}
    assert step_verdict(replace(UPDATE, num_steps=1), close).outcome is WORSE
    assert step_verdict(replace(UPDATE, num_steps=50), close).outcome is UNDECIDED


def test_seconds_count_for_the_fleet_of_the_copy_once_the_step_has_begun() -> None:
    load = ConfigLoad(
        finished=5, errors_5xx=1, model_latency_us=Distribution(values=(9.0,), counts=(5,))
    )
    loads = {"c1": load, "c2": load, "other": load}
    found = FleetEvidence()
    assert add_step_second(found, UPDATE, 200, loads) is found, "not of the step"
    assert add_step_second(found, replace(UPDATE, since=None), 300, loads) is found
    for second in range(201, 201 + WARM_UP_S + 1):
        found = add_step_second(add_old_second(found, UPDATE, loads), UPDATE, second, loads)
    old, new = found.old, found.new
    assert (old.finished, old.errors, sum(old.latency_us.counts)) == (30, 6, 30)
    assert (new.finished, new.errors) == (30, 6)
    assert sum(new.latency_us.counts) == 5, "new copies warm up first"
    assert found.old_of_update.finished == 30


@cases(
    "given, problem",
    case("name", {"speed": "1"}, '"speed" is no setting; there are errors, latency'),
    case("no number", {"errors": "much"}, 'errors is "much"; it must be a number'),
    case("too large", {"errors": "1.5"}, "errors is 1.5; it must be from 0 to 1"),
    case("alpha", {"alpha": "0"}, "alpha is 0; it must be more than 0, at most 0.5"),
    case("not a number", {"latency": "nan"}, "latency is nan"),
)
def test_an_allowance_that_cannot_be_is_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        build_allowance(given)
    assert build_allowance({"errors": "0.05"}) == Allowance(errors=0.05)
