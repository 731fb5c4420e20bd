"""The order of the integration tests: long files first, so that no long file runs alone at last."""

from pathlib import Path

import pytest

# Each file runs in one process. Files that take minutes begin first, the longest file at the top.
LONG = (
    "test_aws_notebooks",
    "test_main_job",
    "test_framework_images",
    "test_sdk_deploy",
    "test_drills",
    "test_supervisor_death",
    "test_console_views",
    "test_predictive_platform",
    "test_up",
    "test_verbs",
    "test_lmi_server",
    "test_predictive_server",
    "test_https",
    "test_pipelines",
    "test_terraform",
    "test_sdk_v3",
    "test_examples_again",
    "test_openai_batches",
    "test_engine_benchmarks",
    "test_graphs",
    "test_apply",
    "test_console",
    "test_deploy",
    "test_leader",
    "test_cells",
    "test_model_servers",
    "test_data_capture",
    "test_serverless_platform",
    "test_from_zero",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files by `LONG`, and other files by the longest time limit of their tests."""
    limits_s: dict[Path, float] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        limit_s = float(marker.args[0]) if marker is not None else 0.0
        limits_s[item.path] = max(limits_s.get(item.path, 0.0), limit_s)

    def order(item: pytest.Item) -> tuple[int, float]:
        name = item.path.stem
        return LONG.index(name) if name in LONG else len(LONG), -limits_s[item.path]

    items.sort(key=order)
