"""The host-memory tier: adapters in page form, bounded in bytes.

The adapter with the lowest priority is evicted first. Held adapters and loads in progress stay.

    priority = age + number of uses * reload cost in seconds / bytes

`age` is the highest priority evicted so far, so that an unused adapter is evicted in the end,
however long it takes to reload.

Source: greedy dual size with frequency, Cherkasova 1998 (HPL-98-69R1).
"""

from heapq import heapify, heappop, heappush

import msgspec

from hostelry.engine.lora.image import HostAdapter


class _Entry(msgspec.Struct):
    """An adapter's entry. `adapter` is set once it is loaded into its reserved room."""

    num_bytes: int
    adapter: HostAdapter | None = None
    reload_cost_s: float = 0.0
    num_uses: int = 0
    num_holds: int = 0
    priority: float = 0.0


class HostTier:
    """Adapters by content id, at most `max_bytes` of them, loads in progress included."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.num_evictions = 0
        self._entries: dict[str, _Entry] = {}
        self._heap: list[tuple[float, str]] = []  # may hold outdated priorities
        self._age = 0.0

    def __len__(self) -> int:
        """The number of loaded adapters."""
        return sum(entry.adapter is not None for entry in self._entries.values())

    def get(self, content_id: str) -> HostAdapter | None:
        """The adapter, if it is loaded."""
        entry = self._entries.get(content_id)
        return entry.adapter if entry else None

    def touch(self, content_id: str) -> None:
        """Count a use."""
        entry = self._entries.get(content_id)
        if entry is not None:
            entry.num_uses += 1
            self._rank(content_id, entry)

    def reserve(
        self, content_id: str, num_bytes: int, *, may_evict: bool = True
    ) -> tuple[str, ...] | None:
        """Reserve room for a load. Returns the evicted ids, or None if there is not enough room."""
        if content_id in self._entries:
            return ()
        if not may_evict and num_bytes > self.max_bytes - self.num_bytes:
            return None
        evicted = self._make_room(num_bytes)
        if evicted is not None:
            self._entries[content_id] = _Entry(num_bytes)
            self.num_bytes += num_bytes
        return evicted

    def put(self, adapter: HostAdapter, *, reload_cost_s: float) -> None:
        """Put the adapter into the room reserved for it."""
        entry = self._entries[adapter.content_id]
        self.num_bytes += adapter.num_bytes - entry.num_bytes
        entry.num_bytes = adapter.num_bytes
        entry.adapter = adapter
        entry.reload_cost_s = reload_cost_s
        entry.num_uses += 1
        self._rank(adapter.content_id, entry)

    def hold(self, content_id: str) -> None:
        """Keep it until `unhold` was called as often. Raises KeyError if it is not loaded."""
        self._entries[content_id].num_holds += 1

    def unhold(self, content_id: str) -> None:
        """Release a hold. No effect if it is not loaded."""
        entry = self._entries.get(content_id)
        if entry is not None:
            entry.num_holds -= 1
            assert entry.num_holds >= 0, f"{content_id} is released more often than held"
            self._rank(content_id, entry)

    def evict(self, content_id: str) -> bool:
        """Evict the adapter. False if it is held, loading or absent."""
        entry = self._entries.get(content_id)
        if entry is None or entry.num_holds or entry.adapter is None:
            return False
        self.num_evictions += 1
        self.drop(content_id)
        return True

    def drop(self, content_id: str) -> None:
        """Forget it and its reserved room, whether held or not."""
        entry = self._entries.pop(content_id, None)
        if entry is not None:
            self.num_bytes -= entry.num_bytes

    def check_integrity(self) -> None:
        """Raise AssertionError if the counts are wrong or the bound is exceeded."""
        assert self.num_bytes == sum(entry.num_bytes for entry in self._entries.values())
        assert self.num_bytes <= self.max_bytes
        ranked = set(self._heap)
        for content_id, entry in self._entries.items():
            if entry.adapter is not None and not entry.num_holds:
                assert (entry.priority, content_id) in ranked, f"{content_id} can never be evicted"

    def _rank(self, content_id: str, entry: _Entry) -> None:
        worth = entry.num_uses * max(entry.reload_cost_s, 1e-6) / max(entry.num_bytes, 1)
        entry.priority = self._age + worth
        heappush(self._heap, (entry.priority, content_id))
        if len(self._heap) > 64 + 4 * len(self._entries):
            self._heap = [item for item in set(self._heap) if self._is_current(item)]
            heapify(self._heap)

    def _is_current(self, item: tuple[float, str]) -> bool:
        entry = self._entries.get(item[1])
        return entry is not None and entry.adapter is not None and entry.priority == item[0]

    def _make_room(self, num_bytes: int) -> tuple[str, ...] | None:
        """Evict until there is enough room. None, evicting nothing, if that is impossible."""
        victims: list[str] = []
        kept: list[tuple[float, str]] = []  # held ones, which stay in the order
        room = self.max_bytes - self.num_bytes
        while room < num_bytes and self._heap:
            item = heappop(self._heap)
            if not self._is_current(item) or item[1] in victims:
                continue
            kept.append(item)
            entry = self._entries[item[1]]
            if not entry.num_holds:
                victims.append(item[1])
                room += entry.num_bytes
        for item in kept:
            heappush(self._heap, item)
        if room < num_bytes:
            return None
        for victim in victims:
            self._age = max(self._age, self._entries[victim].priority)
            self.evict(victim)
        return tuple(victims)
