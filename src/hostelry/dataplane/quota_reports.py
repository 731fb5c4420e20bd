"""Reports of a host's use of quotas to control, by one of its gateway workers.

The worker that holds the lock of `path` reports every second. The kernel frees the lock when the
worker dies, and the next one takes over. The reporter also writes the use of the day to the disk,
every `SYNC_S`: a power cut loses at most the use of that time.
"""

import asyncio
import fcntl
import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest
from hostelry.base.json import decode
from hostelry.dataplane.shared.quota_table import CountUse, QuotaTable, decode_label
from hostelry.domain.quota import QuotaGrants, QuotaReport, ReportedUse
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream

LOG = logging.getLogger(__name__)
PATH = "/internal/quotas/use"
REPORT_S = 1.0
SYNC_S = 2.0
TIMEOUTS = Timeouts(total_s=5.0, connect_s=1.0)
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class QuotaReporter:
    """Reports the table of a host.

    Args:
        get_table: returns the table. None without quotas.
        lock: the file whose lock the reporting worker holds.
        pool, address, internal_key: lead to control.
        host_id: the id of this host. Empty if it is the only one.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        get_table: Callable[[], QuotaTable | None],
        lock: Path,
        pool: Upstream,
        address: str,
        internal_key: str,
        host_id: str,
        now: Callable[[], float],
    ) -> None:
        self._get_table = get_table
        self._lock_path = lock
        self._lock: int | None = None
        self._pool = pool
        self._address = address
        self._headers = {INTERNAL_KEY_HEADER: internal_key}
        self._host_id = host_id
        self._now = now
        self._synced_at = 0.0
        self._num_reported = 0

    async def step(self) -> None:
        """Report once, if this worker is the reporter and there are quotas."""
        table = self._get_table()
        if table is None or not self._is_reporter():
            return
        if abs(self._now() - self._synced_at) >= SYNC_S:
            await asyncio.to_thread(table.sync)
            self._synced_at = self._now()
        uses = [build_use(it) for it in table.list_uses(self._now())]
        shown = tuple(it for it in uses if it.quota_id)
        if not shown and not self._num_reported and not self._host_id:
            return
        body = msgspec.json.encode(QuotaReport(host=self._host_id, uses=shown))
        request = HttpRequest("POST", PATH, "", self._headers, body)
        try:
            answer = await call(self._pool, self._address, request, TIMEOUTS, MAX_ANSWER_BYTES)
            if answer.status != 200:
                return
            self._num_reported = len(shown)
            grants = decode(answer.body, QuotaGrants).grants
        except (UpstreamError, msgspec.MsgspecError) as error:
            LOG.debug("the use of quotas was not reported: %s", error)
            return
        if grants:
            table.grant(grants, self._now())

    def close(self) -> None:
        """Let another worker report."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _is_reporter(self) -> bool:
        if self._lock is not None:
            return True
        descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._lock = descriptor
        return True


def build_use(use: CountUse) -> ReportedUse:
    """Build the report of one count. Without a quota's id if its label is damaged."""
    quota_id, values = decode_label(use.label)
    return ReportedUse(
        key=use.key.hex(),
        quota_id=quota_id,
        values=values,
        used=use.used,
        held=use.held,
        refused=use.refused,
        warned=use.warned,
        shares=use.shares,
    )
