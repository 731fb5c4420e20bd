"""A town for each test."""

from collections.abc import Iterator

import pytest
from tests.unit.reconcile.samples import Town


@pytest.fixture
def town() -> Iterator[Town]:
    built = Town()
    yield built
    built.close()
