"""Numbers of environments of a serverless variant, and those that end."""

import pytest

from hostelry.domain.serverless import ServerlessConfig
from hostelry.scaling.decide.wake import EnvironmentUse, environments_for, to_end


def config(most: int = 5, ready: int = 0) -> ServerlessConfig:
    return ServerlessConfig(memory_mb=1024, max_concurrency=most, provisioned_concurrency=ready)


@pytest.mark.parametrize(
    ("concurrency", "now", "expected"),
    [
        pytest.param(1, 0, 1, id="the first request starts one"),
        pytest.param(3, 1, 3, id="one for each request under way"),
        pytest.param(9, 1, 5, id="MaxConcurrency at most"),
        pytest.param(1, 4, 4, id="a wake never lowers"),
        pytest.param(3, 3, 3, id="the same wake again changes nothing"),
        pytest.param(0, 2, 2, id="a wake without a request changes nothing"),
        pytest.param(10**9, 0, 5, id="an absurd number"),
    ],
)
def test_a_wake_raises(concurrency: int, now: int, expected: int) -> None:
    assert environments_for(concurrency, now, config()) == expected


@pytest.mark.parametrize(
    ("used_at", "ending", "ready", "expected"),
    [
        pytest.param({}, (), 0, (), id="none there"),
        pytest.param(
            {"a": 400.0, "b": 401.0}, (), 0, ("a",), id="the idle one ends, to the second"
        ),
        pytest.param({"b": 300.0, "a": 200.0}, (), 0, ("a", "b"), id="the longest idle first"),
        pytest.param({"a": 200.0, "b": 300.0}, (), 1, ("a",), id="provisioned ones stay"),
        pytest.param(
            {"a": 200.0, "b": 1000.0}, (), 1, ("a",), id="a busy one is the one that stays"
        ),
        pytest.param({"a": 200.0, "b": 300.0}, ("a",), 1, (), id="one that ends does not count"),
        pytest.param({"a": 200.0, "b": 300.0}, ("a",), 0, ("b",), id="beside one that ends"),
        pytest.param({"a": 200.0}, (), 2, (), id="fewer than are provisioned"),
        pytest.param({"a": 2000.0}, (), 0, (), id="used in the future, by another clock"),
    ],
)
def test_idle_environments_end(
    used_at: dict[str, float], ending: tuple[str, ...], ready: int, expected: tuple[str, ...]
) -> None:
    uses = [EnvironmentUse(copy_id=it, used_at=at) for it, at in used_at.items()]
    assert to_end(uses, ending, config(ready=ready), 600.0, 1000.0) == expected
