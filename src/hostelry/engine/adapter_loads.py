"""Execution of the scheduler's decisions about adapters, between steps and without waiting."""

import msgspec

from hostelry.engine.kernels.batch import AdapterIndex
from hostelry.engine.lora.errors import AdapterTooLargeError
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.lora.loader import (
    AdapterEvent,
    Dropped,
    LeftHost,
    LoadedToHost,
    LoadFailed,
    Uploaded,
    UploadFailed,
)
from hostelry.engine.lora.store import AdapterStore
from hostelry.engine.lora.uploads import Placer
from hostelry.engine.pages.adapters import AdapterState
from hostelry.engine.pages.unified import (
    OutOfPagesError,
    PagePool,
    PinBudgetError,
)
from hostelry.engine.scheduler.decisions import Plan
from hostelry.engine.scheduler.planner import Scheduler


class FailedLoad(msgspec.Struct, frozen=True):
    """An adapter that could not be loaded: the requests removed for it, and the reason."""

    request_ids: tuple[str, ...]
    reason: str


class AdapterLoads:
    """Adapters being loaded into the pool, and the indexes of those in it."""

    def __init__(
        self,
        store: AdapterStore,
        scheduler: Scheduler,
        pages: PagePool,
        placer: Placer,
        min_pages: int = 0,
    ) -> None:
        """`placer` is the store's uploader. Every adapter takes at least `min_pages` pages."""
        self._store = store
        self._scheduler = scheduler
        self._pages = pages
        self._placer = placer
        self._min_pages = min_pages
        self._indices: dict[str, AdapterIndex] = {}  # of contents that have pages
        self._pinned: dict[str, str] = {}  # content by name

    def absorb(self, now: float) -> list[FailedLoad]:
        """Report to the scheduler the events of adapters since the last call."""
        failed = [self._absorb(event, now) for event in self._store.poll()]
        return [it for it in failed if it is not None]

    def begin(self, plan: Plan) -> None:
        """Start the loads that `plan` asks for."""
        self._forget_evicted()
        for content_id in plan.fetches:
            self._store.request(content_id)
        for content_id, page_numbers in plan.uploads:
            self._upload(content_id, page_numbers)

    def index(self, content_id: str) -> AdapterIndex:
        """The index, in the pool, of a content that a running request holds."""
        return self._indices[content_id]

    def is_in_pool(self, content_id: str) -> bool:
        """Whether requests may run with the content now."""
        return self._pages.adapter_state(content_id) is AdapterState.RESIDENT

    @property
    def pinned(self) -> frozenset[str]:
        """Names whose adapters stay in the pool."""
        return frozenset(self._pinned)

    def pin(self, name: str, content_id: str, num_pages: int) -> None:
        """Pin the content, of `num_pages` pages, for `name` in place of any other content.

        Raises PinBudgetError, changing nothing.
        """
        former = self._pinned.get(name)
        if former == content_id:
            return
        self.unpin(name)
        try:
            self._pages.pin_adapter(content_id, num_pages)
        except PinBudgetError:
            if former is not None:
                self._pages.pin_adapter(former)
                self._pinned[name] = former
            raise
        self._pinned[name] = content_id

    def preload(self, content_id: str, now: float) -> None:
        """Load a content from host memory into the pool, if it is there and pages are available."""
        if self._pages.adapter_state(content_id) is not AdapterState.ABSENT:
            return
        if self._store.host(content_id) is None:
            return
        num_pages = max(self._store.summary(content_id).num_pages, self._min_pages)
        cost_s = self._store.reload_cost_s(content_id)
        try:
            page_numbers = self._pages.reserve_adapter(
                content_id, num_pages, reload_cost_s=cost_s, now=now
            )
        except OutOfPagesError:
            return  # running requests use the pages. The adapter's first request loads it
        self._forget_evicted()
        self._upload(content_id, page_numbers)

    def unpin(self, name: str) -> None:
        """Make the name's content evictable. No effect if it is not pinned."""
        content_id = self._pinned.pop(name, None)
        if content_id is not None and content_id not in self._pinned.values():
            self._pages.unpin_adapter(content_id)

    def check_size(self, adapter: HostAdapter) -> None:
        """Raise AdapterTooLargeError for an adapter that leaves no page for a request."""
        self._store.check_fits(adapter)
        num_pages = max(adapter.summary.num_pages, self._min_pages)
        most = self._pages.num_pages - self._pages.pin_budget_pages - 1
        if num_pages > most:
            raise AdapterTooLargeError(
                f"the adapter takes {num_pages} pages of the pool; beside pinned adapters and a "
                f"request it has {most}; raise pool_bytes"
            )

    def wait(self, timeout_s: float) -> None:
        """Block until there is an event for `absorb`, at most `timeout_s`."""
        self._store.wait(timeout_s)

    def _absorb(self, event: AdapterEvent, now: float) -> FailedLoad | None:
        content_id = event.content_id
        match event:
            case LoadedToHost():
                self._scheduler.note_in_host(content_id)
            case LeftHost():
                self._scheduler.note_left_host(content_id)
            case Uploaded():
                self._scheduler.note_uploaded(content_id)
            case LoadFailed(_, reason) | UploadFailed(_, reason):
                return self._fail_load(content_id, reason, now)
            case Dropped():
                self._give_back(content_id, now)
        return None

    def _fail_load(self, content_id: str, reason: str, now: float) -> FailedLoad:
        """Remove the requests that waited. A content that is in the pool keeps its index."""
        ended = self._scheduler.fail_adapter(content_id, now)
        if not self.is_in_pool(content_id):
            self._forget(content_id)
        return FailedLoad(ended, reason)

    def _give_back(self, content_id: str, now: float) -> None:
        """Release the pages of a content that no name and no request needs."""
        self._forget_evicted()
        if self._pages.adapter_state(content_id) is AdapterState.LOADING:
            self._scheduler.fail_adapter(content_id, now)
        else:
            self._pages.drop_adapter(content_id)
        self._forget(content_id)

    def _upload(self, content_id: str, page_numbers: tuple[int, ...]) -> None:
        adapter = self._store.host(content_id)
        assert adapter is not None, f"{content_id} is to be uploaded and not in host memory"
        used = page_numbers[: adapter.summary.num_pages]  # all of them, unless adapters are padded
        self._indices[content_id] = self._placer.index(adapter, used)
        self._store.start_upload(content_id, used)

    def _forget(self, content_id: str) -> None:
        if self._indices.pop(content_id, None) is not None:
            self._placer.forget(content_id)

    def _forget_evicted(self) -> None:
        for content_id in self._pages.take_evicted():
            self._forget(content_id)
