"""Environments of serverless variants: wakes start them, idleness ends them, by a clock of ours."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import NOW, SCOPE, deployment, endpoint, variant

from hostelry.base.clock import ManualClock
from hostelry.base.errors import Conflict
from hostelry.domain.copy import Copy, CopyPhase, CopySpec, CopyStatus
from hostelry.domain.endpoint import EndpointStatus, EndpointVariant
from hostelry.domain.load import LoadKey, SecondLoad, Wake
from hostelry.domain.model import Container
from hostelry.domain.resize import replace_variant, set_environments
from hostelry.domain.serverless import ServerlessConfig
from hostelry.scaling.loop.environments import Environments
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state

KEY = LoadKey(scope=SCOPE, endpoint_name="ep", variant_name="AllTraffic")
IDLE_S, EMPTY_S = 60.0, 300.0


class House:
    """A serverless endpoint, its running environments, and the load that gateways report."""

    def __init__(self, *, ready: int = 0, most: int = 4) -> None:
        self.clock, self.steady = ManualClock(NOW), ManualClock(5.0)
        self.state = open_state(MemoryStore())
        self.loads: list[SecondLoad] = []
        config = ServerlessConfig(
            memory_mb=1024, max_concurrency=most, provisioned_concurrency=ready
        )
        made = deployment(replace(variant(model="m"), serverless=config))
        self.change(set_environments(replace(made.variants[0], serverless=config), 0), made)
        self.restart()

    def restart(self) -> None:
        """Control dies and begins again."""
        self.environments = Environments(
            self.state, self, self.clock, self.steady, idle_s=IDLE_S, empty_s=EMPTY_S
        )

    def recent(self, key: LoadKey, since: int) -> Sequence[SecondLoad]:
        return [it for it in self.loads if it.key == key and it.second >= since]

    def change(self, after: EndpointVariant, made: Any = None) -> None:
        found = self.state.endpoints.get(SCOPE, "ep")
        active = made if found is None else found.value.active
        wanted = endpoint(replace_variant(active, after), EndpointStatus.IN_SERVICE)
        expect = None if found is None else found.version
        self.state.endpoints.put(SCOPE, "ep", wanted, expect=expect)

    @property
    def variant(self) -> EndpointVariant:
        found = self.state.endpoints.get(SCOPE, "ep")
        assert found is not None
        return found.value.active.variants[0]

    def wake(self, concurrency: int) -> None:
        at = self.clock.now()
        self.environments.wake(Wake(key=KEY, held=1, at=at, concurrency=concurrency))

    def run(self, *ids: str, phase: CopyPhase = CopyPhase.READY) -> None:
        """Set the present environments, and desire as many."""
        for stored in self.state.copies.list():
            self.state.copies.delete(SCOPE, stored.value.spec.id, expect=stored.version)
        for copy_id in ids:
            self.state.copies.put(SCOPE, copy_id, environment(copy_id, phase), expect=None)
        self.change(set_environments(self.variant, len(ids)))

    def second(self, arrivals: dict[str, int] | None = None, busy: tuple[str, ...] = ()) -> None:
        """One second with these requests, and a look at it."""
        load = SecondLoad(
            key=KEY,
            second=int(self.clock.now()),
            arrivals_by_copy=arrivals or {},
            in_flight_max_by_copy=dict.fromkeys(busy, 1),
        )
        self.loads = [load]
        self.pass_s(1.0)

    def pass_s(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.steady.advance(seconds)
        self.environments.tick()
        self.loads = []


def environment(copy_id: str, phase: CopyPhase) -> Copy:
    return Copy(
        scope=SCOPE,
        endpoint_name="ep",
        variant_name="AllTraffic",
        component_name=None,
        generation=1,
        instance_id="i",
        spec=CopySpec(
            id=copy_id,
            owner="variant/AllTraffic",
            container=Container(image="image"),
            requirements=None,
            download_timeout_s=60.0,
            startup_timeout_s=60.0,
        ),
        status=CopyStatus(id=copy_id, phase=phase),
        created_at=NOW,
    )


@cases(
    "wakes, expected",
    case("one request", [1], 1),
    case("the same wake again", [1, 1, 1], 1),
    case("a late one lowers nothing", [2, 1], 2),
    case("MaxConcurrency at most", [99], 4),
    case("no request", [0], 0),
)
def test_a_wake_raises_the_number(wakes: list[int], expected: int) -> None:
    house = House()
    for concurrency in wakes:
        house.wake(concurrency)
    assert house.variant.environments == expected


def test_a_wake_brings_the_instance_back() -> None:
    house = House()
    house.change(replace(house.variant, desired_instance_count=0))
    house.wake(1)
    assert (house.variant.environments, house.variant.desired_instance_count) == (1, 1)


def test_a_wake_that_meets_another_writer_is_decided_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House()
    put, failures = house.state.endpoints.put, [Conflict("lost"), Conflict("lost")]

    def losing(*args: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return put(*args, **options)

    monkeypatch.setattr(
        type(house.state.endpoints), "put", lambda _, *args, **it: losing(*args, **it)
    )
    house.wake(2)
    assert house.variant.environments == 2


@cases(
    "key",
    case("no such endpoint", replace(KEY, endpoint_name="absent")),
    case("no such variant", replace(KEY, variant_name="absent")),
)
def test_a_wake_for_what_is_not_there_changes_nothing(key: LoadKey) -> None:
    house = House()
    house.environments.wake(Wake(key=key, held=1, at=NOW, concurrency=3))
    assert house.variant.environments == 0


def test_an_environment_ends_once_it_was_idle_for_so_long() -> None:
    house = House()
    house.run("a", "b")
    house.second({"a": 1, "b": 1})
    for _ in range(59):
        house.second({"b": 1})
    assert house.variant.environments == 2
    house.second({"b": 1})
    assert (house.variant.environments, house.variant.idle) == (1, ("a",))


def test_one_long_request_keeps_its_environment() -> None:
    house = House()
    house.run("a")
    for _ in range(100):
        house.second(busy=("a",))
    assert house.variant.environments == 1


@pytest.mark.parametrize(("ready", "expected"), [(0, 0), (1, 1), (2, 2), (3, 3)])
def test_provisioned_environments_never_end(ready: int, expected: int) -> None:
    house = House(ready=ready)
    house.run("a", "b", "c")
    for _ in range(200):
        house.second()
    assert house.variant.environments == expected


def test_one_that_is_being_ended_is_not_ended_twice() -> None:
    house = House()
    house.run("a", "b", "c")
    for second in range(70):
        house.second({"c": 1} if second < 30 else None)
    assert (house.variant.environments, set(house.variant.idle)) == (1, {"a", "b"})
    for _ in range(5):
        house.second()
    assert house.variant.environments == 1


def test_one_that_starts_is_kept_while_requests_wait_for_it() -> None:
    house = House()
    house.run("a", phase=CopyPhase.STARTING)
    for _ in range(100):
        house.wake(1)
        house.second()
    assert house.variant.environments == 1
    for _ in range(61):
        house.second()
    assert house.variant.environments == 0


def test_the_instance_ends_a_while_after_its_last_environment() -> None:
    house = House()
    house.run("a")
    house.second()
    house.run()
    for _ in range(300):
        house.second()
    assert house.variant.desired_instance_count == 1
    house.second()
    assert house.variant.desired_instance_count == 0


def test_a_restart_of_control_begins_the_idle_time_again() -> None:
    house = House()
    house.run("a")
    for _ in range(50):
        house.second()
    house.restart()
    for _ in range(50):
        house.second()
    assert house.variant.environments == 1
    for _ in range(11):
        house.second()
    assert house.variant.environments == 0


def test_a_jump_of_the_wall_clock_ends_nothing() -> None:
    house = House()
    house.run("a")
    house.second()
    house.clock.advance(86_400.0)
    house.second()
    assert house.variant.environments == 1


def test_when_each_was_last_used_is_known() -> None:
    house = House()
    house.run("a", "b")
    house.second({"a": 1, "b": 1})
    for _ in range(10):
        house.second({"b": 1})
    since = house.environments.idle_since()
    assert since == {"a": pytest.approx(NOW + 1), "b": pytest.approx(NOW + 11)}
