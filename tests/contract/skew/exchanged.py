"""Everything that hosts with two versions exchange: messages, records, tables, bytes.

Calls between processes on one host are not included, because a host is upgraded as a whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from sqlalchemy import MetaData
from sqlalchemy.dialects import postgresql

from hostelry.audit.acts import AuditEntry
from hostelry.audit.former import METADATA as FORMER_AUDIT
from hostelry.audit.invocation import InvocationReport
from hostelry.audit.rows import MARKS as AUDIT_MARKS
from hostelry.audit.rows import RECORDS as AUDIT_RECORDS
from hostelry.cluster.gateway_hosts import GatewayHost, GatewayHostList
from hostelry.cluster.join_routes import JoinedFiles, JoinRequest
from hostelry.cluster.join_token import JoinedHost, TokenRecord
from hostelry.cluster.keeper import Renewal, Renewed
from hostelry.cluster.leader_view import LeaderAnswer
from hostelry.control.data import METADATA as METRICS
from hostelry.dataplane.balancing.model_balancer import ModelLease
from hostelry.dataplane.balancing.sessions import KEY_BYTES as SESSION_KEY_BYTES
from hostelry.dataplane.control_client import WantedReply
from hostelry.dataplane.shared.count_table import KEY_BYTES
from hostelry.dataplane.shared.host_counts import HostCounts
from hostelry.dataplane.shared.session_exchange import SessionEntry
from hostelry.domain.ai_benchmark_job import AiBenchmarkEnd, AiBenchmarkSnapshot
from hostelry.domain.async_request import AsyncMetricsReport
from hostelry.domain.copy import CopySpec
from hostelry.domain.data_capture import CaptureReport
from hostelry.domain.llm_batch import LlmBatch, StoredFile
from hostelry.domain.load import LoadReceipt, LoadReport, Wake
from hostelry.domain.log_source import DataLogReport
from hostelry.domain.messaging import PublicationRequest
from hostelry.domain.object_event import ObjectEvent, TargetCheck
from hostelry.domain.recommendation_job import BenchmarkEnd, BenchmarkSnapshot
from hostelry.domain.route_delta import RouteDelta
from hostelry.domain.routes import RouteSnapshot
from hostelry.domain.transform_job import TransformEnd, TransformProgressReport, TransformSnapshot
from hostelry.fleet.agent.models.copy_models import AskedModel, EndedLease
from hostelry.fleet.protocol import CopyPage, Observation
from hostelry.fleet.ray.messages import NodeOrder, Started
from hostelry.home.home import Credentials, UpConfig
from hostelry.jobs.batches.rows import METADATA as BATCHES
from hostelry.jobs.batches.rows import SHARED as SHARED_BATCHES
from hostelry.jobs.control_client import EndpointKnown
from hostelry.jobs.queue.tables import METADATA as QUEUE
from hostelry.messaging.tables import METADATA as MESSAGES
from hostelry.store.claim import METADATA as CLAIMS
from hostelry.store.leaders import METADATA as LEASES
from hostelry.store.records import Records, State
from hostelry.store.schema import FLOORS
from hostelry.store.tables import METADATA as STORE

MESSAGES_BY_HTTP: Sequence[Any] = (
    LoadReport, Wake, WantedReply, RouteSnapshot, RouteDelta, GatewayHost, GatewayHostList,
    LeaderAnswer, AsyncMetricsReport, CaptureReport, DataLogReport, ObjectEvent, TargetCheck,
    PublicationRequest, TransformEnd, TransformProgressReport, TransformSnapshot, EndpointKnown,
    BenchmarkEnd, BenchmarkSnapshot, AiBenchmarkEnd, AiBenchmarkSnapshot, InvocationReport,
    JoinRequest, JoinedFiles, Renewal, Renewed, CopySpec, Observation, CopyPage, AskedModel,
    EndedLease, ModelLease, NodeOrder, Started,
)  # fmt: skip
KEPT: Sequence[Any] = (
    UpConfig, Credentials, TokenRecord, JoinedHost, LoadReceipt, AuditEntry, LlmBatch, StoredFile,
)  # fmt: skip
GROWING = STORE  # changed by Alembic. Other tables are created if missing, and never change
FIXED: Sequence[MetaData] = (
    BATCHES, SHARED_BATCHES, QUEUE, MESSAGES, FORMER_AUDIT, AUDIT_MARKS, AUDIT_RECORDS, METRICS,
    CLAIMS, LEASES, FLOORS.metadata,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SampleBytes:
    """A message in our own format, with its bytes."""

    name: str
    value: Any

    def encode(self) -> bytes:
        """The bytes that this version sends."""
        return bytes(self.value.encode())


COUNTS = HostCounts(
    host_id="h-1", process=7, number=2, is_all=True,
    totals={bytes(range(KEY_BYTES)): 3, bytes(KEY_BYTES): (1 << 32) - 1},
)  # fmt: skip
SESSION = SessionEntry(bytes(range(SESSION_KEY_BYTES)), -1, 1.5)
SAMPLES = (SampleBytes("counts of a host", COUNTS), SampleBytes("a session", SESSION))


def record_types() -> list[Any]:
    """The type of each kind of record."""
    hints = get_type_hints(State)
    return [get_args(it)[0] for it in hints.values() if get_origin(it) is Records]


def types_now() -> dict[str, Any]:
    """The JSON schema of each type by name: messages, records, and their parts."""
    roots = [*MESSAGES_BY_HTTP, *KEPT, *record_types()]
    _, found = msgspec.json.schema_components(roots, ref_template="{name}")
    return {name: slim(it) for name, it in sorted(found.items())}


def slim(schema: Any) -> Any:
    """A schema without its texts for readers."""
    if isinstance(schema, Mapping):
        return {
            key: slim(it)
            for key, it in schema.items()
            if not (key == "description" and isinstance(it, str)) and key != "title"
        }
    return [slim(it) for it in schema] if isinstance(schema, list) else schema


POSTGRESQL = postgresql.dialect()  # type: ignore[no-untyped-call] # SQLAlchemy has no types here


def tables_now(*found: MetaData) -> dict[str, dict[str, str]]:
    """The columns of each table in PostgreSQL. "default" marks a column that may be left out."""
    return {
        table.name: {
            column.name: " ".join(
                [
                    column.type.compile(POSTGRESQL),
                    "key" if column.primary_key else "null" if column.nullable else "required",
                    *(["default"] if column.server_default is not None else []),
                ]
            )
            for column in table.columns
        }
        for metadata in found
        for table in metadata.sorted_tables
    }
