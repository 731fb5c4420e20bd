"""Tables of named cases: `@cases("size, message", case("half of the copies", 10, None), ...)`."""

from typing import Any

import pytest
from _pytest.mark import ParameterSet


def case(name: str, *values: object, marks: Any = ()) -> ParameterSet:
    """A row of a table. Its name states the purpose of the row, and is the id of the test."""
    return pytest.param(*values, id=name, marks=marks)


def cases(names: str, *rows: ParameterSet) -> pytest.MarkDecorator:
    """Run a test with each row. `names` are the parameters, separated by commas."""
    return pytest.mark.parametrize(names, rows)
