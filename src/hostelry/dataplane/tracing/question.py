"""A question for calls, and a worker's answer. Each is one line of JSON."""

from typing import Any

import msgspec

from hostelry.dataplane.tracing.call_document import call_document
from hostelry.dataplane.tracing.call_ring import CallRing

MAX_LISTED = 100


class TraceQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calls by their ids, or by the calls that made them. `order` asks for slow or failed calls.

    `account` None: of all accounts. `endpoint` None: of all endpoints.
    """

    account: str | None = None
    ids: frozenset[str] = frozenset()
    parents: frozenset[str] = frozenset()
    order: str | None = None
    endpoint: str | None = None
    since_s: float = 300.0
    limit: int = 20


class WorkerCalls(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's answer: documents of calls, and the calls that it keeps.

    `began_at` is the worker's start. All calls since `oldest_at` are kept. Both are in seconds
    since the epoch.
    """

    worker: str
    calls: tuple[dict[str, Any], ...]
    began_at: float
    oldest_at: float | None
    num_last: int


def answer(ring: CallRing, question: TraceQuestion, worker: str) -> WorkerCalls:
    """Find the calls of this worker."""
    account, limit = question.account, min(question.limit, MAX_LISTED)
    if question.order is None:
        found = ring.find(account=account, ids=question.ids, parents=question.parents)
    else:
        order = ring.find_failed if question.order == "failed" else ring.find_slowest
        found = order(
            account=account, endpoint=question.endpoint, since_s=question.since_s, limit=limit
        )
    return WorkerCalls(
        worker=worker,
        calls=tuple(call_document(call, worker) for call in found),
        began_at=ring.began_at,
        oldest_at=ring.oldest_at,
        num_last=ring.num_last,
    )
