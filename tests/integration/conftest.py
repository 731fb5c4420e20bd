"""The order of the integration tests: long files first, so that none is left for the end."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files by the longest time limit that a test of theirs asks for; the rest stays."""
    limits_s: dict[Path, float] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        limit_s = float(marker.args[0]) if marker is not None else 0.0
        limits_s[item.path] = max(limits_s.get(item.path, 0.0), limit_s)
    items.sort(key=lambda item: -limits_s[item.path])
