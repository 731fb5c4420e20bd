"""The quotas of a gateway worker: they follow control, and their use is reported to it."""

import asyncio

from hostelry.base.clock import SystemClock
from hostelry.base.concurrency import run_periodically
from hostelry.base.files import write_whole
from hostelry.dataplane.balancing.outstanding import InFlightCounts
from hostelry.dataplane.quota_reports import REPORT_S, QuotaReporter
from hostelry.dataplane.quota_source import PublishedQuotas
from hostelry.gateway.quota_gate import QuotaGate
from hostelry.home.home import Home, UpConfig
from hostelry.home.quota_files import get_quota_files
from hostelry.http1.upstream import Upstream

JOINED_HOSTS = 2  # a joined host has at least one other


class GatewayQuotas:
    """Feeds `gate` with control's quotas. Until control answers, with the quotas on disk."""

    def __init__(
        self, home: Home, config: UpConfig, internal_key: str, pool: Upstream, gate: QuotaGate
    ) -> None:
        clock, url, files = SystemClock(), config.control_url, get_quota_files(home)
        self._source = PublishedQuotas(pool, url, internal_key, files.document, write_whole, clock)
        self._source.listen(gate.follow)
        host_id = config.host_id if config.peer_port else ""
        self._reporter = QuotaReporter(
            lambda: gate.table, files.reporter, pool, url, internal_key, host_id, clock.now
        )

    def start(self) -> dict[str, asyncio.Task[None]]:
        """Start the tasks, and return them by their names."""
        loop = asyncio.get_running_loop()
        reporting = run_periodically("reporting quotas", self._reporter.step, REPORT_S)
        return {
            "following quotas": loop.create_task(self._source.follow()),
            "reporting quotas": loop.create_task(reporting),
        }


def count_hosts(config: UpConfig, counts: InFlightCounts) -> int:
    """The number of hosts with gateways, as far as it is known."""
    share = counts.share
    if share is not None:
        return share.num
    return JOINED_HOSTS if config.is_gateway_host else 1
