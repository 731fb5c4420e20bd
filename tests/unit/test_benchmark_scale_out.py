"""The replayed half of the measurement of a step, on one seed."""

import pytest
from benchmarks.scale_out_replay import (
    CASES,
    CLASSIC,
    HIGH_RESOLUTION,
    KNATIVE,
    OURS,
    RAY_SERVE,
    Size,
    delay_s,
    figures,
    measure_replay,
    policy_named,
)
from tests.cases import case, cases


@cases(
    "policy, least_s, most_s",
    case("three minutes of a 1-minute metric", CLASSIC, 120.0, 260.0),
    case("three periods of ten seconds", HIGH_RESOLUTION, 20.0, 45.0),
    case("Knative's panic window", KNATIVE, 2.0, 20.0),
    case("Ray Serve's delay", RAY_SERVE, 30.0, 60.0),
    case("the responsive policy", OURS, 0.5, 8.0),
)
def test_a_step_is_seen_when_its_rule_allows(policy: str, least_s: float, most_s: float) -> None:
    found = delay_s(CASES[0], policy, seed=5)
    assert found is not None
    assert least_s <= found <= most_s


def test_a_policy_aims_at_the_case_s_concurrency() -> None:
    case = CASES[0]
    assert policy_named(HIGH_RESOLUTION, case).concurrency == pytest.approx(case.target)
    assert policy_named(OURS, case).concurrency == pytest.approx(case.target)
    assert policy_named(CLASSIC, case).minimum == case.copies


def test_a_measurement_has_a_row_for_each_policy() -> None:
    measured = measure_replay(Size(steps=1, hours=0, cases=0), seed=1)
    assert measured == {"replayed": [], "digests": {}}
    rows = [{"load": "a", "policy": OURS, "p95 s": 3.0}]
    assert figures(rows, "a", OURS)["p95 s"] == 3.0
