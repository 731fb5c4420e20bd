"""Every instance that this control process drives: one driver, and one task, each."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from hostelry.base.clock import Clock
from hostelry.domain.copy import CopySpec, Instance
from hostelry.fleet.protocol import Fleet
from hostelry.reconcile.driver import Connect, InstanceDriver
from hostelry.reconcile.plan.endpoint_state import GroupKey, InstanceFacts


class Instances:
    """What is wanted of each instance, and what is known of it.

    `changed` is called with an endpoint's key whenever something was seen of an instance of it.
    Used from the event loop only; `facts` may be read from any thread.
    """

    def __init__(
        self, fleet: Fleet, connect: Connect, clock: Clock, changed: Callable[[GroupKey], None]
    ) -> None:
        self._fleet = fleet
        self._connect = connect
        self._clock = clock
        self._changed = changed
        self._drivers: dict[str, InstanceDriver] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._seen: set[str] = set()

    @property
    def facts(self) -> Mapping[str, InstanceFacts]:
        """What is known of each instance now."""
        drivers = tuple(self._drivers.items())
        return {instance_id: it.facts for instance_id, it in drivers if instance_id in self._seen}

    def want(self, instance: Instance, desired: Sequence[CopySpec] | None) -> None:
        """Have the instance run exactly `desired`; None: have it end."""
        if instance.id not in self._drivers:
            self._start(instance)
        self._drivers[instance.id].want(desired)

    def forget(self, instance_id: str) -> None:
        """Let go of an instance whose record is gone."""
        self._drivers.pop(instance_id, None)
        self._seen.discard(instance_id)
        task = self._tasks.pop(instance_id, None)
        if task is not None:
            task.cancel()

    def known(self, key: GroupKey) -> list[str]:
        """Ids of the driven instances of one endpoint."""
        return [it for it, driver in self._drivers.items() if _key(driver.instance) == key]

    async def looked_at(self) -> None:
        """Return once every instance that is driven now was reached, or could not be."""
        for driver in list(self._drivers.values()):
            await driver.looked.wait()

    async def close(self) -> None:
        """Stop driving; agents and copies go on."""
        tasks = list(self._tasks.values())
        for instance_id in list(self._drivers):
            self.forget(instance_id)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, instance: Instance) -> None:
        driver = InstanceDriver(instance, self._fleet, self._connect, self._clock, self._saw)
        self._drivers[instance.id] = driver
        self._tasks[instance.id] = asyncio.get_running_loop().create_task(driver.run())

    def _saw(self, instance_id: str) -> None:
        driver = self._drivers.get(instance_id)
        if driver is not None:
            self._seen.add(instance_id)
            self._changed(_key(driver.instance))


def _key(instance: Instance) -> GroupKey:
    return GroupKey(instance.scope, instance.endpoint_name)
