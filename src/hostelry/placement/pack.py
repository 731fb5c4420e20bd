"""Bin packing of requested copies onto instances. Copies that run already never move.

    order of the requests              instance                          tried
    --------------------------------   -------------------------------   --------------------------
    as given                           preferred by strategy             always
    largest share first                preferred by strategy             if a better plan may exist
    largest share first                first fit                         if a better plan may exist
    largest sum, memory, CPUs first    tightest                          ... up to MORE_PLANS_UP_TO

The plan with the fewest unplaced copies wins, then, if all copies are to be packed, the one that
opens the fewest empty instances, then the first. So never fewer copies are placed, and
under BINPACK no more instances opened, than by first-fit-decreasing. SPREAD opens more on purpose.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from hostelry.domain.component import PlacementStrategy
from hostelry.domain.shape import Requirements
from hostelry.placement.preference import (
    FitKey,
    Size,
    add_up_shares,
    count_by_zone,
    count_least_instances,
    find_best_room,
    get_cpu_share,
    get_fit_key,
    get_largest_share,
    get_memory_share,
)
from hostelry.placement.room import Need, Room, build_rooms, to_need
from hostelry.placement.shortage import explain_unplaced
from hostelry.placement.values import CopyRequest, Held, Host, Packing, Placed, WhyNot

MORE_PLANS_UP_TO = 200  # requests. Beyond it, time is worth more than an instance

Choice = Callable[["Attempt", CopyRequest, "Needs"], int | None]


class Needs(msgspec.Struct, frozen=True):
    """Resources that copies of one kind take, by instance type."""

    by_type: Mapping[str, Need]
    requirements: Mapping[str, Requirements]


def place(requests: Sequence[CopyRequest], hosts: Iterable[Host], held: Iterable[Held]) -> Packing:
    """Find a place, or the reason for none, for each request. The order of hosts does not matter.

    Copies on instances that are not among `hosts` are ignored.
    """
    hosts, held = tuple(hosts), tuple(held)
    best: Attempt | None = None
    for size, choose in _list_plans(len(requests)):
        attempt = Attempt(requests, build_rooms(hosts, held))
        attempt.run(range(len(requests)) if size is None else attempt.largest_first(size), choose)
        if best is None or attempt.cost < best.cost:
            best = attempt
        if attempt.is_perfect:
            break
    assert best is not None, "at least one plan was made"
    return best.packing(held)


def _list_plans(num_requests: int) -> list[tuple[Size | None, Choice]]:
    """Plans to try, the preferred one first. None: in the given order."""
    plans: list[tuple[Size | None, Choice]] = [
        (None, choose_preferred),
        (get_largest_share, choose_preferred),
        (get_largest_share, choose_first_fit),
    ]
    if num_requests <= MORE_PLANS_UP_TO:
        plans += [(it, choose_tightest) for it in (add_up_shares, get_memory_share, get_cpu_share)]
    return plans


class Attempt:
    """One plan being made: requests are placed one by one."""

    def __init__(self, requests: Sequence[CopyRequest], room_list: list[Room]) -> None:
        self.rooms = room_list
        self._requests = requests
        self._placed: dict[int, Placed] = {}
        self._used_before = sum(1 for it in room_list if it.num_copies)
        self._needs = _list_needs(requests)
        self._fewest_opened = self._least_opened()
        self._keys: dict[int, list[FitKey | None]] = {}
        self._stale: dict[int, set[int]] = {}
        self._zones: dict[str, dict[int, dict[str, int]]] = {}

    @property
    def cost(self) -> tuple[int, int]:
        """Copies without a place, then, where all are to be packed, the instances opened."""
        unplaced = len(self._requests) - len(self._placed)
        return (unplaced, self._opened if self._all_packed else 0)

    @property
    def is_perfect(self) -> bool:
        """Whether no plan can be better: all are placed, on the fewest instances possible."""
        unplaced, opened = self.cost
        return unplaced == 0 and opened <= self._fewest_opened

    @property
    def _opened(self) -> int:
        return sum(1 for it in self.rooms if it.num_copies) - self._used_before

    @property
    def _all_packed(self) -> bool:
        """Whether all requests are for BINPACK without balanced zones."""
        packed = PlacementStrategy.BINPACK
        return all(it.strategy is packed and it.max_imbalance is None for it in self._requests)

    def _least_opened(self) -> int:
        """A lower bound of the empty instances needed, 0 if types differ."""
        types = {it.host.instance_type for it in self.rooms}
        if len(types) != 1:
            return 0
        (name,) = types
        needs = [it.by_type[name] for it in self._needs if name in it.by_type]
        free = [it.free_need() for it in self.rooms if it.num_copies]
        left = Need(
            sum(it.accelerators for it in needs) - sum(it.accelerators for it in free),
            sum(it.memory_bytes for it in needs) - sum(it.memory_bytes for it in free),
            sum(it.cpu_millionths for it in needs) - sum(it.cpu_millionths for it in free),
        )
        return max(0, count_least_instances([left], self.rooms[0].host.shape))

    def run(self, order: Iterable[int], choose: Choice) -> None:
        """Place the requests in `order`, each where `choose` decides."""
        for index in order:
            request, needs = self._requests[index], self._needs[index]
            position = choose(self, request, needs)
            if position is not None:
                self._placed[index] = self._take(request, needs, position)

    def largest_first(self, size: Size) -> list[int]:
        """Positions of the requests, the largest copy first."""
        shapes = {it.host.instance_type: it.host.shape for it in self.rooms}
        distinct = {id(it): it for it in self._needs}
        sizes = {kind: size(it.by_type, shapes) for kind, it in distinct.items()}
        return sorted(
            range(len(self._requests)),
            key=lambda index: (sizes[id(self._needs[index])], self._requests[index].owner, index),
        )

    def packing(self, held: Sequence[Held]) -> Packing:
        """The result of the plan, with the reasons for unplaced copies."""
        reasons: dict[int, WhyNot] = {}
        outcomes: list[Placed | WhyNot] = []
        for index, request in enumerate(self._requests):
            if index in self._placed:
                outcomes.append(self._placed[index])
                continue
            kind = id(self._needs[index])  # copies with the same needs lack the same
            if kind not in reasons:
                reasons[kind] = explain_unplaced(request, self.rooms, held)
            outcomes.append(replace(reasons[kind], owner=request.owner))
        return Packing(outcomes=tuple(outcomes))

    def keys(self, needs: Needs) -> list[FitKey | None]:
        """The fit of such a copy on each instance now, or None if it does not fit."""
        kind = id(needs)
        if kind not in self._keys:
            self._keys[kind] = [get_fit_key(it, needs.by_type) for it in self.rooms]
            self._stale[kind] = set()
        keys, stale = self._keys[kind], self._stale[kind]
        for position in stale:
            # Free resources only shrink: a copy that did not fit never will.
            if keys[position] is not None:
                keys[position] = get_fit_key(self.rooms[position], needs.by_type)
        stale.clear()
        return keys

    def zones(self, owner: str, needs: Needs) -> dict[str, int]:
        """The owner's copies in each zone that has an instance of a type for such a copy."""
        of_owner = self._zones.setdefault(owner, {})
        if id(needs) not in of_owner:
            of_owner[id(needs)] = count_by_zone(owner, self.rooms, needs.by_type)
        return of_owner[id(needs)]

    def _take(self, request: CopyRequest, needs: Needs, position: int) -> Placed:
        room = self.rooms[position]
        instance_type = room.host.instance_type
        device_ids = room.take(needs.by_type[instance_type], request.owner)
        for stale in self._stale.values():
            stale.add(position)
        for counts in self._zones.get(request.owner, {}).values():
            if room.host.zone in counts:
                counts[room.host.zone] += 1
        return Placed(
            instance_id=room.host.instance_id,
            requirements=needs.requirements[instance_type],
            device_ids=device_ids,
        )


def choose_preferred(attempt: Attempt, request: CopyRequest, needs: Needs) -> int | None:
    """The instance preferred by the request's strategy."""
    return find_best_room(
        request, attempt.rooms, attempt.keys(needs), attempt.zones(request.owner, needs)
    )


def choose_tightest(attempt: Attempt, _: CopyRequest, needs: Needs) -> int | None:
    """The instance that would have the least left."""
    fitting = [(key, it) for it, key in enumerate(attempt.keys(needs)) if key is not None]
    return min(fitting)[1] if fitting else None


def choose_first_fit(attempt: Attempt, _: CopyRequest, needs: Needs) -> int | None:
    """The first instance, by id, that holds the copy."""
    for position, room in enumerate(attempt.rooms):
        need = needs.by_type.get(room.host.instance_type)
        if need is not None and room.fits(need):
            return position
    return None


def _list_needs(requests: Sequence[CopyRequest]) -> list[Needs]:
    """The needs of each request. Equal needs are one object, so that fits are computed once."""
    known: dict[tuple[tuple[str, Requirements], ...], Needs] = {}
    found: list[Needs] = []
    for request in requests:
        kind = tuple(sorted(request.requirements_by_type.items(), key=lambda item: item[0]))
        if kind not in known:
            known[kind] = Needs({name: to_need(asked) for name, asked in kind}, dict(kind))
        found.append(known[kind])
    return found
