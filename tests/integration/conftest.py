"""The order of the integration tests: long files first, so that none is left for the end."""

from pathlib import Path

import pytest

# A file is run by one process: those that take minutes begin first, the longest at the top.
LONG = (
    "test_published_programs",
    "test_rollout_drill",
    "test_terraform",
    "test_sdk_deploy",
    "test_sdk_v3",
    "test_guardrails",
    "test_examples_again",
    "test_predictive_platform",
    "test_async_sdk",
    "test_up",
    "test_drills",
    "test_supervisor_death",
    "test_graph_targets",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files by `LONG`, others by the longest time limit that a test of theirs asks for."""
    limits_s: dict[Path, float] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        limit_s = float(marker.args[0]) if marker is not None else 0.0
        limits_s[item.path] = max(limits_s.get(item.path, 0.0), limit_s)

    def order(item: pytest.Item) -> tuple[int, float]:
        name = item.path.stem
        return LONG.index(name) if name in LONG else len(LONG), -limits_s[item.path]

    items.sort(key=order)
