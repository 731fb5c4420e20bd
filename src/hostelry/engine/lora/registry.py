"""Adapters by name, and who still uses them."""

from collections.abc import Sequence
from dataclasses import dataclass

from hostelry.engine.lora.adapter import Adapter
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.slots import AdapterSlots, Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSummary:
    """A loaded adapter; `rank` is the largest of its modules, `content_id` a hash of its files."""

    name: str
    rank: int
    num_parameters: int
    target_modules: tuple[str, ...]
    content_id: str


@dataclass(slots=True)
class LoadedAdapter:
    """One version of an adapter; lives until nobody uses it and its name is gone."""

    summary: AdapterSummary
    slot: Slot
    num_requests: int = 0
    is_retired: bool = False


class AdapterRegistry:
    """Names of loaded adapters. A request holds one version from its start to its end."""

    def __init__(self, slots: AdapterSlots) -> None:
        self._slots = slots
        self._by_name: dict[str, LoadedAdapter] = {}

    @property
    def summaries(self) -> Sequence[AdapterSummary]:
        """What is loaded, in order of loading."""
        return [loaded.summary for loaded in self._by_name.values()]

    def check_free(self, name: str) -> None:
        """Raise AdapterError where `name` cannot be given to a new adapter."""
        if not name:
            raise AdapterError("the adapter's name is empty")
        if name in self._by_name:
            raise AdapterError(f"adapter {name!r} is already loaded; unload it first")

    def register(self, name: str, adapter: Adapter) -> AdapterSummary:
        """Give the adapter a slot under a free name."""
        self.check_free(name)
        summary = AdapterSummary(
            name=name,
            rank=adapter.max_rank,
            num_parameters=adapter.num_parameters,
            target_modules=tuple(sorted({path.rsplit(".", 1)[-1] for path in adapter.modules})),
            content_id=adapter.content_id,
        )
        self._by_name[name] = LoadedAdapter(summary, self._slots.add(adapter))
        return summary

    def retire(self, name: str) -> bool:
        """Take the name away; requests that hold the adapter finish with it. False if unknown."""
        loaded = self._by_name.pop(name, None)
        if loaded is None:
            return False
        loaded.is_retired = True
        self._free_if_unused(loaded)
        return True

    def acquire(self, name: str) -> LoadedAdapter | None:
        """Hold the adapter of that name for one request; None if there is none."""
        loaded = self._by_name.get(name)
        if loaded is not None:
            loaded.num_requests += 1
        return loaded

    def release(self, loaded: LoadedAdapter) -> None:
        """Give a hold back."""
        loaded.num_requests -= 1
        self._free_if_unused(loaded)

    def _free_if_unused(self, loaded: LoadedAdapter) -> None:
        if loaded.is_retired and loaded.num_requests == 0:
            self._slots.remove(loaded.slot)
