"""The tenants that use each destination, by gateway worker, in shared memory.

A worker writes one word for a destination: a tag of its tenant, or SEVERAL, and the time. So each
worker knows if requests of another tenant come through a peer.
"""

import logging
from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

from hostelry.dataplane.shared.count_table import WORD_BYTES, CountTable
from hostelry.dataplane.shared.mapped_file import LockedError
from hostelry.domain.load import LoadKey

LOG = logging.getLogger(__name__)
NUM_DESTINATIONS = 4096
TIME_BITS = 32
SEVERAL = (1 << 31) - 1


class TenantTags(Protocol):
    """The tenants of other workers."""

    def note(self, key: LoadKey, tag: int) -> None:
        """Publish that this worker has requests of a tenant, or of SEVERAL."""
        ...

    def has_other(self, key: LoadKey, tag: int, within_s: float) -> bool:
        """True if another worker had requests of another tenant within this time."""
        ...


class NoTags:
    """A worker without peers."""

    def note(self, key: LoadKey, tag: int) -> None:
        """No-op."""

    def has_other(self, key: LoadKey, tag: int, within_s: float) -> bool:
        """False."""
        return False


NO_TAGS = NoTags()


class SharedTags:
    """Worker number `worker` (from 0) at the table. Its column is cleared at first.

    A destination without a row is not shared. `now_s` is a clock that all processes share.
    """

    def __init__(self, table: CountTable, worker: int, now_s: Callable[[], float]) -> None:
        self._table = table
        self._worker = worker
        self._now_s = now_s
        self._rows: dict[LoadKey, int] = {}
        table.clear(worker)

    def note(self, key: LoadKey, tag: int) -> None:
        """Publish that this worker has requests of a tenant, or of SEVERAL."""
        row = self._rows.get(key) or self._find_row(key)
        if row:
            word = tag << TIME_BITS | int(self._now_s())
            self._table.words[row // WORD_BYTES + self._worker] = word

    def has_other(self, key: LoadKey, tag: int, within_s: float) -> bool:
        """True if another worker had requests of another tenant within this time."""
        row = self._rows.get(key) or self._find_row(key)
        if not row:
            return False
        since_s = int(self._now_s() - within_s)
        words = self._table.read(self._table.bytes, row)
        return any(
            word
            and number != self._worker
            and word >> TIME_BITS != tag
            and word & (1 << TIME_BITS) - 1 >= since_s
            for number, word in enumerate(words)
        )

    def _find_row(self, key: LoadKey) -> int:
        scope = key.scope
        names = (scope.account, scope.region, key.endpoint_name, key.variant_name)
        try:
            row = self._table.row("/".join((*names, key.component_name or "")), self._worker)
        except LockedError as error:
            LOG.warning("tenants of %s are not shared: %s", key.endpoint_name, error)
            row = None
        self._rows[key] = row or 0
        return row or 0


def compute_tag(tenant: str) -> int:
    """Compute the tag of a tenant: from 1, and below SEVERAL."""
    digest = blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return 1 + int.from_bytes(digest, "little") % (SEVERAL - 1)
