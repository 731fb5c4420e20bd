"""Metrics of budgets, for alarms."""

import logging
from pathlib import Path

import pytest
from tests.unit.control.test_usage_recorder import HERE, Rig

from hostelry.control.budget_watch import BudgetWatch
from hostelry.domain.metric import OWN_NAMESPACE, MetricStat
from hostelry.home.price_file import PriceFile
from hostelry.metrics.protocol import MetricFilter
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state

PRICES = """
currency = "EUR"
[instances."ml.a"]
price_per_hour = 3600
[[budgets]]
name = "all"
amount = 40
period = "day"
[[budgets]]
name = "none"
amount = 0
period = "month"
endpoint = "other"
"""


def published(rig: Rig, path: Path, most_sums: int = 100) -> dict[str, float]:
    """The last value of each metric of budgets, after one evaluation."""
    state = open_state(MemoryStore())
    BudgetWatch(HERE, state, rig.metrics, PriceFile(path), rig.clock, most_sums).publish()
    found = {}
    for metric in rig.metrics.find(HERE, MetricFilter(namespace=OWN_NAMESPACE)):
        if metric.name.startswith("Budget"):
            stat = MetricStat(metric=metric, period_s=60, statistic="Maximum")
            points = rig.metrics.datapoints(HERE, stat, 0, 4e9)
            found[f"{metric.name} {dict(metric.dimensions)['BudgetName']}"] = points[-1].value
    return found


def test_budgets_are_metrics(tmp_path: Path) -> None:
    rig, path = Rig(), tmp_path / "prices.toml"
    rig.run(20)
    assert published(rig, path) == {}
    path.write_text(PRICES)
    assert published(rig, path) == {
        "BudgetSpent all": pytest.approx(20),
        "BudgetUsed all": pytest.approx(50),
    }


def test_a_budget_of_no_endpoint_is_logged_once_and_has_no_metrics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig, path = Rig(), tmp_path / "prices.toml"
    path.write_text(PRICES)
    state = open_state(MemoryStore())
    watch = BudgetWatch(HERE, state, rig.metrics, PriceFile(path), rig.clock)
    with caplog.at_level(logging.WARNING):
        watch.publish()
        watch.publish()
    logged = [it.message for it in caplog.records]
    assert [it.count("budget none has no metrics now: no endpoint other") for it in logged] == [
        0,
        1,
    ]


def test_too_many_sums_leave_budgets_without_metrics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig, path = Rig(), tmp_path / "prices.toml"
    rig.run(20)
    path.write_text(PRICES)
    with caplog.at_level(logging.WARNING):
        assert published(rig, path, 1) == {}
    assert "more than 1 sums of usage" in caplog.text


def test_a_faulty_file_is_logged_once_and_has_no_price(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "prices.toml"
    file = PriceFile(path)
    assert file.get_price_per_hour("ml.a") is None
    path.write_text(PRICES)
    assert file.get_price_per_hour("ml.a") == 3600
    assert file.get_price_per_hour("ml.b") is None
    path.write_text("currency = 1")
    with caplog.at_level(logging.WARNING):
        assert file.get_price_per_hour("ml.a") is None
        assert file.get() is None
    unknown, faulty = [it.message for it in caplog.records]
    assert "ml.a is not a known type of SageMaker" in unknown
    assert "currency is 1" in faulty
