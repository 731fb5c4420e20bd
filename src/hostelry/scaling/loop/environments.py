"""The environments of serverless variants: started by wakes, ended once they are idle.

Only the desired number and the idle environments are written. The plan of the endpoint does the
rest. A wake is on the path of a request that waits, so it reads and writes one record.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.base.errors import Conflict
from hostelry.domain.copy import Copy, CopyPhase
from hostelry.domain.endpoint import Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.load import LoadKey, SecondLoad, Wake
from hostelry.domain.resize import replace_variant, set_environments
from hostelry.scaling.decide.wake import EnvironmentUse, count_environments, list_ended_environments
from hostelry.scaling.loop.capacity import find_variant
from hostelry.scaling.loop.loads import LoadReader, get_load_name
from hostelry.store.records import State, Versioned

IDLE_S = 600.0  # AWS publishes no figure
EMPTY_S = 3000.0  # without an environment, until the instance ends
SERVING = (EndpointStatus.IN_SERVICE, EndpointStatus.UPDATING)
ATTEMPTS = 20  # reconcilers write too, and each lost race means that one of them got on
LOOK_BACK_S = 5  # reports may be late by a second or two

Change = Callable[[EndpointVariant], EndpointVariant]


class _Seen(msgspec.Struct, kw_only=True):
    """The observations of a variant. Instants are of a clock that never jumps.

    `used_at` is by environment, `woken_at` the last wake, `empty_since` when the last environment
    ended.
    """

    used_at: dict[str, float]
    woken_at: float
    empty_since: float | None = None


class Environments:
    """The environments of every serverless variant. One thread calls `tick` each second.

    An environment ends after `idle_s` without a request. The instance stays `empty_s` after the
    last environment has ended. Observations of their use are lost with this process. Environments
    count as used when it starts.
    """

    def __init__(
        self,
        state: State,
        aggregator: LoadReader,
        clock: Clock,
        steady: Clock,
        *,
        idle_s: float = IDLE_S,
        empty_s: float = EMPTY_S,
    ) -> None:
        self._state = state
        self._aggregator = aggregator
        self._clock = clock
        self._steady = steady
        self._idle_s = idle_s
        self._empty_s = empty_s
        self._seen: dict[LoadKey, _Seen] = {}
        self._lock = threading.Lock()

    def wake(self, wake: Wake) -> None:
        """Have as many environments as the requests under way need. A repeat is harmless."""
        key = wake.key
        with self._lock:
            seen = self._seen.get(key)
            if seen is not None:
                seen.woken_at = self._steady.now()
        for _ in range(ATTEMPTS):
            found = self._state.endpoints.get(key.scope, key.endpoint_name)
            variant = (
                None if found is None else _find_serving_variant(found.value, key.variant_name)
            )
            if found is None or variant is None or variant.serverless is None:
                return
            now = variant.environments
            count = count_environments(wake.concurrency, now, variant.serverless)
            if count == now or self._write(found, set_environments(variant, count)):
                return

    def tick(self) -> None:
        """Look at the use of every environment, and end those that are idle."""
        now = self._steady.now()
        copies = _group_by_name(it.value for it in self._state.copies.list())
        found = {}
        for stored in self._state.endpoints.list():
            for variant in stored.value.active.variants:
                if variant.serverless is not None and stored.value.status in SERVING:
                    key = _get_key(stored.value, variant)
                    mine = copies.get(key, ())
                    found[key] = seen = self._look(key, mine, now)
                    self._end_idle(stored, variant, seen, now)
        with self._lock:
            self._seen = found

    def idle_since(self) -> Mapping[str, float]:
        """When each environment was last used, in seconds since the epoch, by its id."""
        ago = self._steady.now() - self._clock.now()
        with self._lock:
            seen = list(self._seen.values())
        return {copy_id: at - ago for it in seen for copy_id, at in it.used_at.items()}

    def _look(self, key: LoadKey, copies: Iterable[Copy], now: float) -> _Seen:
        """What is known of a variant after the last seconds' load."""
        with self._lock:
            before = self._seen.get(key) or _Seen(used_at={}, woken_at=now)
        since = int(self._clock.now()) - LOOK_BACK_S
        busy = {it for load in self._aggregator.recent(key, since) for it in _list_busy(load)}
        used_at = {}
        for copy in copies:
            copy_id = copy.spec.id
            at = before.used_at.get(copy_id, now)
            if copy_id in busy:
                at = now
            elif copy.status.phase is not CopyPhase.READY:
                at = max(at, before.woken_at)
            used_at[copy_id] = at
        empty_since = None if used_at else before.empty_since or now
        return _Seen(used_at=used_at, woken_at=before.woken_at, empty_since=empty_since)

    def _end_idle(
        self, found: Versioned[Endpoint], variant: EndpointVariant, seen: _Seen, now: float
    ) -> None:
        config = variant.serverless
        assert config is not None, "only serverless variants are looked at"
        uses = [EnvironmentUse(copy_id=it, used_at=at) for it, at in seen.used_at.items()]
        ended = list_ended_environments(uses, variant.idle, config, self._idle_s, now)
        if ended:
            left = variant.environments - len(ended)
            self._write(found, set_environments(variant, left, (*variant.idle, *ended)))
        elif seen.empty_since is not None and not variant.environments:
            is_over = now - seen.empty_since >= self._empty_s
            if is_over and variant.desired_instance_count:
                self._write(found, replace(variant, desired_instance_count=0, idle=()))

    def _write(self, found: Versioned[Endpoint], variant: EndpointVariant) -> bool:
        """Write a changed variant. False if the endpoint changed meanwhile."""
        endpoint = found.value
        after = replace(endpoint, active=replace_variant(endpoint.active, variant))
        try:
            self._state.endpoints.put(endpoint.scope, endpoint.name, after, expect=found.version)
        except Conflict:
            return False
        return True


def _find_serving_variant(endpoint: Endpoint, name: str) -> EndpointVariant | None:
    return find_variant(endpoint, name) if endpoint.status in SERVING else None


def _get_key(endpoint: Endpoint, variant: EndpointVariant) -> LoadKey:
    name = variant.variant.name
    return LoadKey(scope=endpoint.scope, endpoint_name=endpoint.name, variant_name=name)


def _group_by_name(copies: Iterable[Copy]) -> Mapping[LoadKey, list[Copy]]:
    """The copies that are not draining, by the name that they answer for."""
    found: dict[LoadKey, list[Copy]] = {}
    for copy in copies:
        if not copy.draining:
            found.setdefault(get_load_name(copy), []).append(copy)
    return found


def _list_busy(load: SecondLoad) -> Iterator[str]:
    """The copies that had a request in a second."""
    yield from load.arrivals_by_copy
    yield from (it for it, most in load.in_flight_max_by_copy.items() if most)
