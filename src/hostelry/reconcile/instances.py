"""All instances that this control process drives, each with a driver and a task."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from hostelry.base.clock import Clock
from hostelry.domain.copy import CopySpec, Instance
from hostelry.fleet.protocol import Fleet
from hostelry.reconcile.driver import Connect, InstanceDriver
from hostelry.reconcile.plan.endpoint_state import GroupKey, InstanceFacts


class Instances:
    """Desired copies and facts of all driven instances.

    Calls `changed` with an endpoint's key whenever the facts of one of its instances change.
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
        self._ids: dict[GroupKey, set[str]] = {}

    @property
    def facts(self) -> Mapping[str, InstanceFacts]:
        """Facts about each observed instance, by id."""
        drivers = tuple(self._drivers.items())
        return {instance_id: it.facts for instance_id, it in drivers if instance_id in self._seen}

    def facts_on(self, key: GroupKey) -> Mapping[str, InstanceFacts]:
        """Facts about each observed instance of an endpoint, by id."""
        return {it: self._drivers[it].facts for it in self.known(key) if it in self._seen}

    def set_desired(self, instance: Instance, desired: Sequence[CopySpec] | None) -> None:
        """Have the instance run exactly `desired`; None: have it terminated."""
        if instance.id not in self._drivers:
            self._start(instance)
        self._drivers[instance.id].set_desired(desired)

    def forget(self, instance_id: str) -> None:
        """Stop driving an instance whose record is gone."""
        driver = self._drivers.pop(instance_id, None)
        if driver is not None:
            mine = self._ids[_key(driver.instance)]
            mine.discard(instance_id)
            if not mine:
                del self._ids[_key(driver.instance)]
        self._seen.discard(instance_id)
        task = self._tasks.pop(instance_id, None)
        if task is not None:
            task.cancel()

    def known(self, key: GroupKey) -> list[str]:
        """Ids of one endpoint's driven instances."""
        return list(self._ids.get(key, ()))

    async def all_observed(self) -> None:
        """Wait until every instance driven now was reached, or an attempt failed."""
        for driver in list(self._drivers.values()):
            await driver.observed_once.wait()

    async def close(self) -> None:
        """Stop driving; agents and copies keep running."""
        tasks = list(self._tasks.values())
        for instance_id in list(self._drivers):
            self.forget(instance_id)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, instance: Instance) -> None:
        driver = InstanceDriver(instance, self._fleet, self._connect, self._clock, self._saw)
        self._drivers[instance.id] = driver
        self._ids.setdefault(_key(instance), set()).add(instance.id)
        self._tasks[instance.id] = asyncio.get_running_loop().create_task(driver.run())

    def _saw(self, instance_id: str) -> None:
        driver = self._drivers.get(instance_id)
        if driver is not None:
            self._seen.add(instance_id)
            self._changed(_key(driver.instance))


def _key(instance: Instance) -> GroupKey:
    return GroupKey(instance.scope, instance.endpoint_name)
