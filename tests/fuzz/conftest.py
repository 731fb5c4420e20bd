"""Random cases within a budget. `make fuzz MINUTES=n` draws new cases.

`make test` runs few fixed cases, and `make test-all` three times as many.

    def test_a_cut_frame_is_refused(cases: Cases) -> None:
        for random in cases(20_000):
            frame = ...  # drawn from `random`, which decides the whole case
            assert ...

The run's seed and the case's number determine the case. The summary of a failure shows both:
`HOSTELRY_FUZZ_SEED=S HOSTELRY_FUZZ_FROM=N pytest tests/fuzz -k NAME` starts with that case.
"""

import os
from collections.abc import Callable, Iterator
from random import Random

import pytest
from tests.selection import runs_all

from hostelry.base.clock import monotonic_s

Cases = Callable[[int], Iterator[Random]]

SEED = os.environ.get("HOSTELRY_FUZZ_SEED", "0")
FIRST = int(os.environ.get("HOSTELRY_FUZZ_FROM", "0"))
MINUTES = float(os.environ.get("HOSTELRY_FUZZ_MINUTES", "0"))
COUNTED = "fuzz cases"


def assert_short(error: Exception) -> None:
    """Assert that a refusal fits on a page, whatever was refused."""
    assert 0 < len(str(error)) < 4_000


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> Iterator[Cases]:
    """`cases(n)` yields n cases, a third of them in `make test`.

    With MINUTES it yields as many as the test's share of the time allows.
    """
    num_drawn = 0
    tests = sum("cases" in getattr(it, "fixturenames", ()) for it in request.session.items)
    share_s = MINUTES * 60 / tests
    divisor = 1 if runs_all(request.config) else 3

    def draw(num_cases: int) -> Iterator[Random]:
        nonlocal num_drawn
        ends_at = monotonic_s() + share_s
        most = max(1, num_cases // divisor)
        while monotonic_s() < ends_at if MINUTES else num_drawn < most:
            number = FIRST + num_drawn
            num_drawn += 1
            yield Random(f"{request.node.name} {SEED} {number}")

    yield draw
    request.node.user_properties.append((COUNTED, num_drawn))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of cases of each fuzz test. For a failed test the last case is to rerun."""
    counted = [
        (report.nodeid.rpartition("::")[2], value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "teardown"
        for name, value in report.user_properties
        if name == COUNTED
    ]
    if counted:
        terminalreporter.section(f"fuzz cases, seed {SEED}")
    for name, num_cases in sorted(counted):
        terminalreporter.write_line(f"{num_cases:>10,}  {name}, last case {FIRST + num_cases - 1}")
