"""The lines of one batch that are to be sent, by model; what is in flight of each."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable

from hostelry.base.errors import ServiceError
from hostelry.dataplane.openai_model import find_model
from hostelry.dataplane.route_table import Destination, RouteTable
from hostelry.domain.scope import Scope
from hostelry.jobs.batches.copy_sizes import CopySizes
from hostelry.jobs.records.batch_lines import BatchLine
from hostelry.jobs.rules.batch_fill import HELD, ModelQueue, next_models, room_for_batch


class SharedPools:
    """Which batches have lines for which copies."""

    def __init__(self) -> None:
        self._batches: dict[str, set[str]] = {}
        self._elsewhere: Counter[str] = Counter()

    def uses(self, batch_id: str, pools: Iterable[str]) -> None:
        """A batch has lines for these pools alone."""
        self.left(batch_id)
        for pool in pools:
            self._batches.setdefault(pool, set()).add(batch_id)

    def left(self, batch_id: str) -> None:
        """A batch has no more lines."""
        for pool, batches in tuple(self._batches.items()):
            batches.discard(batch_id)
            if not batches:
                del self._batches[pool]

    def used_by(self, batch_id: str) -> list[str]:
        """The pools that a batch has lines for."""
        return [pool for pool, batches in self._batches.items() if batch_id in batches]

    def used_elsewhere(self, pools: Iterable[str]) -> None:
        """The pools of other hosts' batches, each as often as there are batches."""
        self._elsewhere = Counter(pools)

    def num_batches(self, pool: str) -> int:
        """How many share a pool, on all hosts."""
        return len(self._batches.get(pool, ())) + self._elsewhere[pool]


class LineQueue:
    """One batch's lines; `take` gives those that are sent now."""

    def __init__(
        self, batch_id: str, scope: Scope, lines: Iterable[BatchLine], shared: SharedPools
    ) -> None:
        self._batch_id = batch_id
        self._scope = scope
        self._shared = shared
        self._waiting: defaultdict[str, deque[BatchLine]] = defaultdict(deque)
        self._in_flight: Counter[str] = Counter()
        self._without_copy: list[str] = []
        for line in lines:
            self._waiting[line.model].append(line)

    @property
    def is_empty(self) -> bool:
        """Whether no line waits."""
        return not any(self._waiting.values())

    @property
    def trouble(self) -> str | None:
        """The model whose lines wait for a copy; None where every model had one at last."""
        if not self._without_copy:
            return None
        model, *others = self._without_copy
        num_lines = len(self._waiting[model]) + self._in_flight[model]
        more = f", and those of {len(others)} more models" if others else ""
        return f"no copy serves model {model:.100} now: {num_lines} of its requests wait{more}"

    def rest(self) -> list[BatchLine]:
        """The lines that wait, in the order of the file."""
        return sorted(line for lines in self._waiting.values() for line in lines)

    def ended(self, line: BatchLine) -> None:
        """A line that was taken is done."""
        self._in_flight[line.model] -= 1
        if not self._in_flight[line.model] and not self._waiting[line.model]:
            del self._in_flight[line.model], self._waiting[line.model]

    def take(self, table: RouteTable, sizes: CopySizes) -> list[BatchLine]:
        """The lines to send now, by the copies that the routes have."""
        found = {model: self._destination(table, model) for model in self._waiting}
        known = [it for it in found.values() if it is not None]
        self._without_copy = [model for model, it in found.items() if it is None]
        known.sort(key=lambda it: len(it.copies))  # an adapter may be on a few of them only
        pools = {pool_of(it): it for it in known}
        self._shared.uses(self._batch_id, pools)
        busy = Counter[str]()
        for model, destination in found.items():
            if destination is not None:
                busy[pool_of(destination)] += self._in_flight[model]
        room = {
            pool: room_for_batch(
                [sizes.wanted(copy) for copy in it.copies],
                self._shared.num_batches(pool),
                busy[pool],
            )
            for pool, it in pools.items()
        }
        queues = [
            ModelQueue(
                model=model,
                pool=None if destination is None else pool_of(destination),
                waiting=[line.number for line in self._head_of(model, room, destination)],
                in_flight=self._in_flight[model],
            )
            for model, destination in found.items()
        ]
        taken = [self._waiting[model].popleft() for model in next_models(queues, room)]
        self._in_flight.update(line.model for line in taken)
        return taken

    def put_back(self, lines: Iterable[BatchLine]) -> None:
        """Lines that were taken and not sent, in the order in which they were taken."""
        for line in reversed(list(lines)):
            self._in_flight[line.model] -= 1
            self._waiting[line.model].appendleft(line)

    def _destination(self, table: RouteTable, model: str) -> Destination | None:
        """Where a model's lines go; None where it has no copy now, or is not there."""
        try:
            destination = find_model(table, self._scope, model)
        except ServiceError:
            return None
        return destination if destination.copies else None

    def _head_of(
        self, model: str, room: dict[str, int], destination: Destination | None
    ) -> list[BatchLine]:
        """As many waiting lines as could be taken."""
        most = HELD if destination is None else room[pool_of(destination)]
        lines = self._waiting[model]
        return [lines[index] for index in range(min(most, len(lines)))]


def pool_of(destination: Destination) -> str:
    """Names the copies of a destination: an adapter's are its base's."""
    key = destination.base_key or destination.key
    return f"{key.scope.account}/{key.scope.region}/{key.endpoint_name}/{key.component_name}"
