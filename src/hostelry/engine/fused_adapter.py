"""The adapter of the setting `fuse_adapter`, merged into a second set of weights.

A request that holds the merged content is computed with the merged weights from start to end,
without pages of an adapter and without low-rank products. All other requests use the base weights,
so no weight is ever subtracted. After a new version of the name, or its removal, later requests
take the unmerged path at once. The merged weights are dropped with their last request. Then a
thread merges the new version from the clean base.

Everything but the merge itself runs in the engine's thread, and costs nothing without the setting.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import msgspec

from hostelry.engine.kernels.decoder import Decoder
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.scheduler.decisions import Chunk

LOG = logging.getLogger(__name__)


class MergedDecoder(msgspec.Struct, frozen=True, eq=False):
    """A decoder of merged weights, and the bytes that it does not share with the base."""

    decoder: Decoder
    num_bytes: int


Merge = Callable[[HostAdapter], MergedDecoder]
"""Merges an adapter into the clean base, in any thread. Raises AdapterError, OSError."""


class FusedAdapter:
    """The merged content, the wanted content, and the requests that hold the merged content."""

    def __init__(
        self, name: str | None, merge: Merge | None, executor: Executor | None = None
    ) -> None:
        self._name = name if merge is not None else None
        self._merge = merge
        self._executor = executor or ThreadPoolExecutor(1, "adapter-merge")
        self._wanted: str | None = None  # the content of the name's current version
        self._adapter: HostAdapter | None = None  # None once it is merged
        self._failed: tuple[str, str] | None = None  # content and reason
        self._merging: tuple[str, Future[MergedDecoder]] | None = None
        self._merged: tuple[str, MergedDecoder] | None = None
        self._holders: set[str] = set()

    @property
    def num_bytes(self) -> int:
        """Bytes of the merged weights, 0 without any."""
        return 0 if self._merged is None else self._merged[1].num_bytes

    @property
    def warnings(self) -> list[str]:
        """Why the wanted version could not be merged. Empty if it could."""
        if self._failed is None or self._failed[0] != self._wanted:
            return []
        return [f"adapter {self._name!r} is computed unmerged: {self._failed[1]}"]

    def set_version(self, name: str, adapter: HostAdapter) -> None:
        """Merge this version of the name, if the name is the one to merge."""
        if name == self._name and self._wanted != adapter.content_id:
            self._wanted, self._adapter, self._failed = adapter.content_id, adapter, None
            self._advance()

    def clear_version(self, name: str) -> None:
        """Return to the clean base, if the name is the merged one."""
        if name == self._name:
            self._wanted = self._adapter = None
            self._advance()

    def serves(self, content_id: str | None) -> bool:
        """True if a new request with that adapter is computed with merged weights."""
        if self._wanted is None or self._wanted != content_id:
            return False
        self._advance()
        return self._merged is not None and self._merged[0] == content_id

    def hold(self, request_id: str) -> None:
        """Compute the request with the merged weights until its `release`."""
        self._holders.add(request_id)

    def release(self, request_id: str) -> None:
        """Forget a request. No effect if it holds nothing."""
        if request_id in self._holders:
            self._holders.discard(request_id)
            self._advance()

    def split_chunks(self, chunks: Sequence[Chunk]) -> list[Sequence[Chunk]]:
        """Split the chunks by decoder: the base's chunks, then the merged decoder's."""
        if not self._holders:
            return [chunks]
        own = [it for it in chunks if it.request_id in self._holders]
        others = [it for it in chunks if it.request_id not in self._holders]
        return [part for part in (others, own) if part]

    def decoder(self, request_id: str) -> Decoder | None:
        """The decoder of a request that holds the merged weights. Otherwise None."""
        if self._merged is None or request_id not in self._holders:
            return None
        return self._merged[1].decoder

    def wait(self) -> None:
        """Block until the registered version is merged. Raises AdapterError with the reason."""
        if self._merging is not None:
            self._merging[1].exception()
            self._advance()
        for warning in self.warnings:
            raise AdapterError(warning)

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _advance(self) -> None:
        """Take a finished merge, drop merged weights without requests, and begin the next merge."""
        if self._merging is not None and self._merging[1].done():
            self._take(*self._merging)
            self._merging = None
        if self._merged is not None and self._merged[0] != self._wanted and not self._holders:
            self._merged = None
            LOG.info("the merged weights of adapter %s are dropped", self._name)
        is_idle = self._merging is None and self._merged is None
        if is_idle and self._adapter is not None and self._merge is not None:
            future = self._executor.submit(self._merge, self._adapter)
            self._merging = (self._adapter.content_id, future)

    def _take(self, content_id: str, future: Future[MergedDecoder]) -> None:
        """Use the result if it is still wanted. A failed merge is not tried again."""
        if content_id != self._wanted:
            return
        self._adapter = None
        error = future.exception()
        if error is None:
            self._merged = (content_id, future.result())
            LOG.info("adapter %s is merged; it takes %d bytes", self._name, self.num_bytes)
        else:
            self._failed = (content_id, f"{type(error).__name__}: {error}")
            LOG.warning("%s", self.warnings[0])
