"""Data of control: in files of its home, or all of it in the store's database.

docs/cluster.md, "The data of a home", has every file of a home.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import RetryableError
from hostelry.base.json import decode
from hostelry.control.audit_log import AuditLog
from hostelry.control.audit_rows import AuditRows
from hostelry.control.metric_rows import MetricRows
from hostelry.domain.load import LoadReceipt
from hostelry.home.home import Home, UpConfig
from hostelry.messaging.message_tables import MessageTables
from hostelry.metrics.persistence.durable import DurableMetrics
from hostelry.metrics.persistence.shared import SharedMetrics
from hostelry.store.database import Database
from hostelry.store.records import State
from hostelry.store.sqlite import SqliteFile

LOG = logging.getLogger(__name__)
RECEIPTS = "load-reports"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlData:
    """The store's records, and what is kept beside them; `close` ends all but the store."""

    state: State
    messages: MessageTables
    metrics: DurableMetrics | SharedMetrics
    audit: AuditLog | AuditRows
    close: Callable[[], None]
    receipts: Mapping[str, LoadReceipt] = field(default_factory=dict)  # at the start
    keep_receipts: Callable[[Mapping[str, LoadReceipt]], None] | None = None


def control_data(
    home: Home, config: UpConfig, state: State, database: Database, clock: Clock
) -> ControlData:
    """Everything that control keeps; `database` is the store's."""
    metrics: DurableMetrics | SharedMetrics
    if config.store_url is not None:
        metrics = shared = SharedMetrics(
            MetricRows(database), clock, max_bytes=config.metrics_bytes
        )
        return ControlData(
            state=state,
            messages=MessageTables(database),
            metrics=metrics,
            audit=AuditRows(database),
            close=metrics.close,
            receipts=kept_receipts(shared),
            keep_receipts=lambda it: shared.mark(RECEIPTS, msgspec.json.encode(it)),
        )
    metrics = DurableMetrics(home.metrics, clock, max_bytes=config.metrics_bytes)
    messages = SqliteFile(home.messages)

    def close() -> None:
        metrics.close()
        messages.close()

    return ControlData(
        state=state,
        messages=MessageTables(messages),
        metrics=metrics,
        audit=AuditLog(home.audit),
        close=close,
    )


def kept_receipts(metrics: SharedMetrics) -> Mapping[str, LoadReceipt]:
    """The receipts that a control before this one kept; none where they cannot be read."""
    try:
        kept = metrics.marks().get(RECEIPTS)
        return {} if kept is None else decode(kept, dict[str, LoadReceipt])
    except (RetryableError, msgspec.MsgspecError) as error:
        LOG.warning("reports of load that are sent again may count twice: %s", error)
        return {}
