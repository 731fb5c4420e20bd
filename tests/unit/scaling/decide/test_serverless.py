"""Numbers of environments of a serverless variant, and those that end."""

from tests.cases import case, cases

from hostelry.domain.serverless import ServerlessConfig
from hostelry.scaling.decide.wake import EnvironmentUse, count_environments, list_ended_environments


def config(most: int = 5, ready: int = 0) -> ServerlessConfig:
    return ServerlessConfig(memory_mb=1024, max_concurrency=most, provisioned_concurrency=ready)


@cases(
    "concurrency, now, expected",
    case("the first request starts one", 1, 0, 1),
    case("one for each request under way", 3, 1, 3),
    case("MaxConcurrency at most", 9, 1, 5),
    case("a wake never lowers", 1, 4, 4),
    case("the same wake again changes nothing", 3, 3, 3),
    case("a wake without a request changes nothing", 0, 2, 2),
    case("an absurd number", 10**9, 0, 5),
)
def test_a_wake_raises(concurrency: int, now: int, expected: int) -> None:
    assert count_environments(concurrency, now, config()) == expected


@cases(
    "used_at, ending, ready, expected",
    case("none there", {}, (), 0, ()),
    case("the idle one ends, to the second", {"a": 400.0, "b": 401.0}, (), 0, ("a",)),
    case("the longest idle first", {"b": 300.0, "a": 200.0}, (), 0, ("a", "b")),
    case("provisioned ones stay", {"a": 200.0, "b": 300.0}, (), 1, ("a",)),
    case("a busy one is the one that stays", {"a": 200.0, "b": 1000.0}, (), 1, ("a",)),
    case("one that ends does not count", {"a": 200.0, "b": 300.0}, ("a",), 1, ()),
    case("beside one that ends", {"a": 200.0, "b": 300.0}, ("a",), 0, ("b",)),
    case("fewer than are provisioned", {"a": 200.0}, (), 2, ()),
    case("used in the future, by another clock", {"a": 2000.0}, (), 0, ()),
)
def test_idle_environments_end(
    used_at: dict[str, float], ending: tuple[str, ...], ready: int, expected: tuple[str, ...]
) -> None:
    uses = [EnvironmentUse(copy_id=it, used_at=at) for it, at in used_at.items()]
    assert list_ended_environments(uses, ending, config(ready=ready), 600.0, 1000.0) == expected
