"""Inference experiments as plain JSON values, for status. Pure."""

from collections.abc import Iterable
from typing import Any

from hostelry.domain.inference_experiment import InferenceExperiment

RECENT = 20  # experiments that are over


def experiment_overview(experiments: Iterable[InferenceExperiment]) -> list[dict[str, Any]]:
    """Every experiment that is not over, and the last ones that are, newest first."""
    newest = sorted(experiments, key=lambda it: (it.created_at, it.name), reverse=True)
    over = [it for it in newest if it.is_over][:RECENT]
    return [
        {
            "name": one.name,
            "account": one.scope.account,
            "region": one.scope.region,
            "status": one.status.value,
            "status_reason": one.status_reason or (one.stop and one.stop.reason),
            "endpoint": one.endpoint_name,
            "production": one.production_name,
            "shadow": one.shadow_name,
            "percent": one.percent,
            "created_at": one.created_at,
            "start_at": one.start_at,
            "end_at": one.end_at,
            "is_deployed": one.is_deployed,
            "promotes": one.stop is not None and one.stop.promotes,
            "deadline_at": one.deadline_at,
        }
        for one in newest
        if not one.is_over or one in over
    ]
