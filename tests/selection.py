"""Selection of tests: `make test` runs one case of a kind, `make test-all` runs them all."""

from collections.abc import Iterable
from typing import Any, TypeVar

import pytest
from _pytest.mark import ParameterSet

Case = TypeVar("Case")


def runs_all(config: pytest.Config) -> bool:
    """True if the tests marked `thorough` run: for `--all`, or when a test is named."""
    return bool(config.getoption("--all")) or any("::" in it for it in config.args)


def first_alone(cases: Iterable[Any], count: int = 1) -> list[Any]:
    """The cases of a parametrized test. `make test` runs only the first `count` cases."""
    every = list(cases)
    return [*every[:count], *map(_left_out, every[count:])]


def _left_out(case: Any) -> Any:
    if isinstance(case, ParameterSet):
        marks = [*case.marks, pytest.mark.thorough]
        return pytest.param(*case.values, id=case.id, marks=marks)
    return thorough(*(case if isinstance(case, tuple) else (case,)))


def chosen(config: pytest.Config, cases: Iterable[Case]) -> list[Case]:
    """The cases to run. In other runs all but the first are marked by `first_alone`."""
    return list(cases) if runs_all(config) else list(cases)[:1]


def numbers(config: pytest.Config, most: int, first: int = 1, every: int = 12) -> range:
    """The numbers of writes, up to `most`, at which a test injects a fault.

    `make test` takes one of `every` writes. Other kinds of faults begin at another `first` write.
    """
    return range(1, most + 1) if runs_all(config) else range(first, most + 1, every)


def thorough(*values: Any, id: str | None = None) -> Any:
    """A case that only `make test-all` runs."""
    return pytest.param(*values, id=id, marks=pytest.mark.thorough)
