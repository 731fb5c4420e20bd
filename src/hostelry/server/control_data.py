"""Data of control: in files of its home, or all of it in the store's database.

docs/cluster.md, "What is kept where", has every file of a home.
"""

from collections.abc import Callable
from dataclasses import dataclass

from hostelry.base.clock import Clock
from hostelry.messaging.message_tables import MessageTables
from hostelry.metrics.persistence.durable import DurableMetrics
from hostelry.metrics.persistence.shared import SharedMetrics
from hostelry.server.audit_log import AuditLog
from hostelry.server.audit_rows import AuditRows
from hostelry.server.home import Home, UpConfig
from hostelry.server.metric_rows import MetricRows
from hostelry.store.database import Database
from hostelry.store.records import State
from hostelry.store.sqlite import SqliteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlData:
    """The store's records, and what is kept beside them; `close` ends all but the store."""

    state: State
    messages: MessageTables
    metrics: DurableMetrics | SharedMetrics
    audit: AuditLog | AuditRows
    close: Callable[[], None]


def control_data(
    home: Home, config: UpConfig, state: State, database: Database, clock: Clock
) -> ControlData:
    """Everything that control keeps; `database` is the store's."""
    metrics: DurableMetrics | SharedMetrics
    if config.store_url is not None:
        metrics = SharedMetrics(MetricRows(database), clock, max_bytes=config.metrics_bytes)
        return ControlData(
            state=state,
            messages=MessageTables(database),
            metrics=metrics,
            audit=AuditRows(database),
            close=metrics.close,
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
