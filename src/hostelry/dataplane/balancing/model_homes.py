"""Models of multi-model copies: where this process expects them, and the cost of loading them."""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from hostelry.domain.load import LoadKey
from hostelry.domain.routes import CopyRoute
from hostelry.routing.adapter_choice import LatencyEstimate
from hostelry.routing.model_choice import WINDOW_S, InstanceView, ModelChoice, choose_for_model

MAX_COPIES = 4096  # remembered. Above it, the least recently used copy is forgotten
MAX_MODELS = 10_000  # remembered per copy, and models whose requests are counted
PRIOR_LOAD_MS = 1000.0
SEVERAL = 1.5  # fading requests: two within 40 s. Then a model is loaded ahead
MAX_PRELOADED = 100
KEPT = 0.8  # weight of earlier loads


class CopyMemory:
    """The models that one copy is expected to have since it began to listen at `address`.

    Each has the second at which its load is expected to end.
    """

    __slots__ = ("address", "latency", "load_ms", "models")

    def __init__(self, address: str) -> None:
        self.address = address
        self.models: OrderedDict[str, float] = OrderedDict()
        self.load_ms = PRIOR_LOAD_MS
        self.latency = LatencyEstimate()

    def forget_beyond(self, most: int) -> None:
        """Keep the `most` models that were used last."""
        while len(self.models) > most:
            self.models.popitem(last=False)


class ModelHomes:
    """Chooses copies for models from the history of requests.

    Args:
        now_s: seconds of a monotonic clock.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._copies: OrderedDict[str, CopyMemory] = OrderedDict()
        # By the name that copies serve, and the model: decayed requests, and their time.
        self._requests: OrderedDict[tuple[LoadKey, str], tuple[float, float]] = OrderedDict()

    def newcomers(self, copies: Sequence[CopyRoute]) -> list[CopyRoute]:
        """Find the copies without history, if another copy has models."""
        found = [it for it in copies if not self._knows(it)]
        if not found or not any(self._copies[it.id].models for it in copies if self._knows(it)):
            return []
        for copy in found:
            self._memory(copy)
        return found

    def popular(self, key: LoadKey) -> list[str]:
        """The models of `key` with several recent requests, the most requested first."""
        now_s = self._now_s()
        counts = {
            target: count * math.exp((at_s - now_s) / WINDOW_S)
            for (owner, target), (count, at_s) in self._requests.items()
            if owner == key
        }
        several = [target for target, count in counts.items() if count >= SEVERAL]
        return sorted(several, key=lambda it: -counts[it])[:MAX_PRELOADED]

    def choose(
        self, key: LoadKey, copies: Sequence[CopyRoute], outstanding: Sequence[int], target: str
    ) -> ModelChoice:
        """Choose a copy of `key`, at least one, and record that the model will be there."""
        now_s = self._now_s()
        memories = [self._memory(copy) for copy in copies]
        views = [
            view_instance(copy, memory, count, target, now_s)
            for copy, memory, count in zip(copies, memories, outstanding, strict=True)
        ]
        choice = choose_for_model(target, views, self._count_requests(key, target, now_s))
        for index in (choice.index, choice.copy_to):
            if index is not None:
                self._expect(memories[index], target, views[index], now_s)
        if len(views) == 1:
            return choice
        return replace(choice, costs_ms=tuple(view.cost_ms for view in views))

    def learn_lease(self, copy: CopyRoute, target: str, *, hit: bool, waited_s: float) -> None:
        """Learn that the copy has the model, for which a request waited."""
        memory = self._memory(copy)
        memory.models[target] = self._now_s()
        memory.forget_beyond(MAX_MODELS)
        if not hit:
            memory.load_ms = KEPT * memory.load_ms + (1 - KEPT) * waited_s * 1000

    def learn_answer(self, copy: CopyRoute, took_ms: float, outstanding: int) -> None:
        """Learn from a whole answer that took `took_ms`, with `outstanding` requests before it."""
        self._memory(copy).latency.answered(took_ms, outstanding, loaded=False)

    def learn_failure(self, copy: CopyRoute, target: str) -> None:
        """Learn that the copy does not have the model."""
        self._memory(copy).models.pop(target, None)

    def forget(self, copy: CopyRoute) -> None:
        """Forget a copy that has gone or was restarted."""
        self._copies.pop(copy.id, None)

    def _memory(self, copy: CopyRoute) -> CopyMemory:
        memory = self._copies.get(copy.id)
        if memory is None or memory.address != copy.address:
            memory = self._copies[copy.id] = CopyMemory(copy.address)
            if len(self._copies) > MAX_COPIES:
                self._copies.popitem(last=False)
        self._copies.move_to_end(copy.id)
        return memory

    def _knows(self, copy: CopyRoute) -> bool:
        memory = self._copies.get(copy.id)
        return memory is not None and memory.address == copy.address

    def _count_requests(self, key: LoadKey, target: str, now_s: float) -> float:
        """Count the requests for the model within the last window. Older requests fade."""
        count, at_s = self._requests.pop((key, target), (0.0, now_s))
        count = count * math.exp((at_s - now_s) / WINDOW_S) + 1.0
        self._requests[key, target] = (count, now_s)
        if len(self._requests) > MAX_MODELS:
            self._requests.popitem(last=False)
        return count

    @staticmethod
    def _expect(memory: CopyMemory, target: str, view: InstanceView, now_s: float) -> None:
        if not view.is_home:
            memory.models[target] = now_s + view.load_ms / 1000
            memory.forget_beyond(MAX_MODELS)
        memory.models.move_to_end(target)


def view_instance(
    copy: CopyRoute, memory: CopyMemory, outstanding: int, target: str, now_s: float
) -> InstanceView:
    """One copy as a request for `target` sees it."""
    loaded_at_s = memory.models.get(target)
    left_ms = memory.load_ms if loaded_at_s is None else max(0.0, loaded_at_s - now_s) * 1000
    return InstanceView(
        name=copy.id,
        outstanding=outstanding,
        service_ms=memory.latency.service_ms,
        load_ms=left_ms,
        is_home=loaded_at_s is not None,
    )
