from tests.cases import case, cases

from hostelry.jobs.rules.async_metrics import build_backlog_samples


@cases(
    "waiting, running, oldest_at, instances, expected",
    case("an empty queue is all zeros", 0, 0, None, 0, (0, 0, 0, 0)),
    case("what waits and runs, by the instances", 6, 2, 90.0, 4, (8, 2, 0, 10)),
    case("a backlog that no instance serves", 3, 0, 99.0, 0, (3, 3, 1, 1)),
    case("a running one needs no capacity", 0, 1, None, 0, (1, 1, 0, 0)),
    case("a clock that was set back gives no age", 1, 0, 101.0, 1, (1, 1, 0, 0)),
)
def test_backlog_samples(
    waiting: int,
    running: int,
    oldest_at: float | None,
    instances: int,
    expected: tuple[float, ...],
) -> None:
    samples = list(build_backlog_samples("queued", waiting, running, oldest_at, instances, 100.0))
    assert tuple(it.values[0] for it in samples) == expected
    assert {it.metric.dimensions for it in samples} == {(("EndpointName", "queued"),)}
