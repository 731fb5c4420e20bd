"""Slots of copies while answers are written: given back, for a bounded number of writes."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.memory_queue import MemoryQueue
from tests.unit.jobs.dispatch.claims import SCOPE, claimed

from hostelry.base.clock import ManualClock
from hostelry.dataplane.capture.capture import RequestCapture
from hostelry.dataplane.metering.meter import Meter
from hostelry.domain.async_request import AsyncInference
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import CopyRoute, EndpointRoute, VariantRoute
from hostelry.jobs.dispatch import attempt
from hostelry.jobs.dispatch.attempt import AttemptDeps, CopyAttempts
from hostelry.jobs.dispatch.metric_reports import AsyncMeasurements
from hostelry.jobs.dispatch.request_input import AttemptCapture
from hostelry.jobs.dispatch.slots import CopySlots
from hostelry.jobs.objects.object_output import AnswerWriter, StaleClaimError

MODEL_SLOTS = 3
ENDPOINT = EndpointRoute(
    scope=SCOPE,
    name="e",
    takes_components=False,
    variants=(
        VariantRoute(
            name="v",
            weight=1.0,
            routing=RoutingStrategy.RANDOM,
            copies=(CopyRoute(id="c", address="http://127.0.0.1:1"),),
        ),
    ),
    async_inference=AsyncInference(output_uri="s3://o", max_concurrent_per_instance=MODEL_SLOTS),
)


class Answer:
    """A reply of one byte."""

    status = 200

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self._chunks: list[bytes | None] = [b"1", None]

    async def next_chunk(self) -> bytes | None:
        return self._chunks.pop(0)

    def close(self) -> None:
        """Nothing is open."""


class Copies:
    """Answers at once, and keeps the heads."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    async def send(self, _: str, parts: tuple[bytes, bytes], *__: object) -> Answer:
        self.heads.append(parts[0])
        return Answer()


class HeldStore:
    """Takes objects once `opened`."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.num_put = 0

    def acting_for(self, _: str) -> "HeldStore":
        return self

    async def put(self, *_: object) -> None:
        self.num_put += 1
        await self.opened.wait()


class AttemptRig:
    """Attempts whose answers arrive at once, and whose outputs wait."""

    def __init__(self) -> None:
        self.store = HeldStore()
        store: Any = self.store
        self.copies = Copies()
        pool: Any = self.copies
        self.slots = CopySlots(lambda: 0.0, lambda: 0.0)
        self.freed = 0
        self.slots.listen(self._count)
        self.attempts = CopyAttempts(
            AttemptDeps(
                store=store,
                writer=AnswerWriter(store),
                pool=pool,
                slots=self.slots,
                meter=Meter(lambda: 0.0),
                measurements=AsyncMeasurements(),
                now_s=lambda: 0.0,
            )
        )
        self.capture = RequestCapture(None, lambda: 0.5, ManualClock())
        (claim,) = claimed(MemoryQueue(), ManualClock(), 1)
        self.request = claim.request

    def _count(self) -> None:
        self.freed += 1

    def begin(self, *, may_publish: bool = True) -> "asyncio.Task[Any]":
        chosen = self.slots.take(ENDPOINT)
        assert chosen is not None

        async def agree() -> bool:
            return may_publish

        captured = AttemptCapture(self.capture, self.request)
        run = self.attempts.run(self.request, ENDPOINT, chosen, captured, agree)
        return asyncio.create_task(run)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_copy_is_free_once_it_has_answered_while_writes_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt, "MAX_WRITING", 2)
    rig = AttemptRig()
    tasks = [rig.begin() for _ in range(3)]
    await settled()
    assert (rig.store.num_put, rig.freed, rig.slots.count_in_flight("c")) == (2, 2, 1)
    rig.store.opened.set()
    await asyncio.gather(*tasks)
    assert (rig.store.num_put, rig.freed, rig.slots.count_in_flight("c")) == (3, 3, 0)


def test_a_copy_knows_whose_request_it_is() -> None:
    async def heads_of(principal: str) -> bytes:
        rig = AttemptRig()
        rig.request = replace(rig.request, principal=principal)
        rig.store.opened.set()
        await rig.begin()
        return rig.copies.heads[0]

    head = asyncio.run(heads_of("role/r"))
    assert b"X-Hostelry-Principal: role/r\r\nX-Hostelry-Tenant: role/r\r\n" in head
    assert b"X-Hostelry-" not in asyncio.run(heads_of(""))


async def test_attempts_that_end_in_any_way_leave_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt, "MAX_WRITING", 1)
    rig = AttemptRig()
    with pytest.raises(StaleClaimError):
        await rig.begin(may_publish=False)
    writing, waiting = rig.begin(), rig.begin()
    await settled()
    for task in (waiting, writing):
        task.cancel()
    await asyncio.gather(writing, waiting, return_exceptions=True)
    assert rig.slots.count_in_flight("c") == 0
    rig.store.opened.set()
    assert (await rig.begin()).body == b"1"
