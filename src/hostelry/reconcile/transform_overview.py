"""Transform jobs and their progress as plain JSON values, for status and watching. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from hostelry.domain.transform_job import TransformJob, TransformProgress
from hostelry.reconcile.overview import overview
from hostelry.reconcile.plan.endpoint_state import EndpointState, InstanceFacts

RECENT = 20  # jobs that are over


def transform_overview(
    jobs: Iterable[TransformJob],
    states: Iterable[EndpointState],
    facts: Mapping[str, InstanceFacts],
    progress_of: Callable[[TransformJob], TransformProgress],
) -> list[dict[str, Any]]:
    """Every job that is not over, and the last ones that are, newest first.

    Each with the `overview` of its endpoint, None where there is none.
    """
    by_key = {(it.endpoint.scope, it.endpoint.name): it for it in states if it.endpoint is not None}
    newest = sorted(jobs, key=lambda it: (it.created_at, it.name), reverse=True)
    over = [it for it in newest if it.is_over][:RECENT]
    shown = [it for it in newest if not it.is_over or it in over]
    found = []
    for job in shown:
        state = by_key.get((job.scope, job.endpoint_name))
        endpoint = None if state is None else overview([state], facts)[0]
        found.append({**_job(job, progress_of(job)), "endpoint": endpoint})
    return found


def _job(job: TransformJob, progress: TransformProgress) -> dict[str, Any]:
    return {
        "name": job.name,
        "account": job.scope.account,
        "region": job.scope.region,
        "status": job.status.value,
        "failure_reason": job.failure_reason,
        "model": job.model.name,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "progress": msgspec.to_builtins(progress),
    }
