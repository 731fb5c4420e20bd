import pytest

from hostelry.jobs.rules.async_metrics import backlog_samples


@pytest.mark.parametrize(
    ("waiting", "running", "oldest_at", "instances", "expected"),
    [
        pytest.param(0, 0, None, 0, (0, 0, 0, 0), id="an empty queue is all zeros"),
        pytest.param(6, 2, 90.0, 4, (8, 2, 0, 10), id="what waits and runs, by the instances"),
        pytest.param(3, 0, 99.0, 0, (3, 3, 1, 1), id="a backlog that no instance serves"),
        pytest.param(0, 1, None, 0, (1, 1, 0, 0), id="a running one needs no capacity"),
        pytest.param(1, 0, 101.0, 1, (1, 1, 0, 0), id="a clock that was set back gives no age"),
    ],
)
def test_backlog_samples(
    waiting: int,
    running: int,
    oldest_at: float | None,
    instances: int,
    expected: tuple[float, ...],
) -> None:
    samples = list(backlog_samples("queued", waiting, running, oldest_at, instances, 100.0))
    assert tuple(it.values[0] for it in samples) == expected
    assert {it.metric.dimensions for it in samples} == {(("EndpointName", "queued"),)}
