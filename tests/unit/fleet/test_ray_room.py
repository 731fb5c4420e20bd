"""An actor whose process starts slowly holds its room already: that is no lack of room."""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.cases import case, cases
from tests.unit.reconcile.test_instances import INSTANCE

from hostelry.base.errors import CapacityError
from hostelry.fleet.ray import driver
from hostelry.fleet.ray.instance_actor import host_identity
from hostelry.fleet.ray.messages import NodeOrder, Started

TYPE = INSTANCE.instance_type


class SlowRay:
    """A cluster of one node, where an actor's process does not start before `answer` is set."""

    exceptions = SimpleNamespace(ActorDiedError=KeyError, RayError=KeyError)

    def __init__(self, free: float) -> None:
        self.free = free
        self.answer: Future[bytes] = Future()
        ref = SimpleNamespace(future=lambda: self.answer)
        start = SimpleNamespace(remote=lambda *_: ref)
        self._actor_id = SimpleNamespace(hex=lambda: "a")
        self._actor = SimpleNamespace(start=start, until_ended=start, _actor_id=self._actor_id)
        free_by_node = lambda: {"n": {TYPE: self.free}}  # noqa: E731
        state = SimpleNamespace(
            available_resources_per_node=free_by_node,
            actors=lambda _: {"State": "PENDING_CREATION"},
        )
        self._private = SimpleNamespace(state=state)

    def get_actor(self, name: str) -> Any:
        raise ValueError(name)

    def nodes(self) -> list[dict[str, Any]]:
        node = {"NodeID": "n", "NodeManagerAddress": "h", "Resources": {TYPE: 1.0}, "Alive": True}
        return [node]

    def remote(self, _: type) -> Any:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._placed))

    def _placed(self) -> Any:
        self.free = 0.0  # by this actor, or by another before
        return self._actor


ORDER = NodeOrder(INSTANCE, "cluster", "agent", "key", {}, {}, None, ("h", 1))
STARTED = Started(host=host_identity(), node_address="h", address="http://h:1")


@cases(
    "free, is_launched",
    case("room that was free is its own while its process starts", 1.0, True),
    case("there was none before", 0.0, False),
)
def test_lack_of_room(free: float, is_launched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LOOK_S", 0.01)
    monkeypatch.setattr(driver, "NO_ROOM_S", 0.0)
    ray = SlowRay(free)

    async def launching() -> str:
        launched = asyncio.ensure_future(
            driver.RayDriver(ray, lambda _: ORDER, None, lambda _: None).launch(INSTANCE)
        )
        await asyncio.wait({launched}, timeout=0.1)
        ray.answer.set_result(msgspec.json.encode(STARTED))
        return (await launched).address

    if is_launched:
        assert asyncio.run(launching()) == "http://h:1"
        return
    with pytest.raises(CapacityError, match="are in use"):
        asyncio.run(launching())
