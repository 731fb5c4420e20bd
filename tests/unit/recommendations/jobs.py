"""An inference recommendations job for tests."""

from typing import Any

from msgspec.structs import replace

from hostelry.domain.model import Container, Model
from hostelry.domain.recommendation_job import (
    BenchmarkMetrics,
    BenchmarkStep,
    RecommendationJob,
    RecommendationJobType,
    RecommendationStatus,
    SamplePayload,
    StoppingRules,
    TrafficPhase,
)
from hostelry.domain.scope import Scope

SCOPE = Scope("111122223333", "us-west-2")
NOW = 1_700_000_000.0
MODEL = Model(
    scope=SCOPE,
    name="m",
    arn=SCOPE.arn("model", "m"),
    created_at=NOW,
    containers=(Container(image="djl-inference:0.29.0-lmi", environment={"A": "1"}),),
    given={},
)
METRICS = BenchmarkMetrics(invocations_per_minute=600.0, latency_ms=9.5)


def step(number: int, instance_type: str | None = "ml.small", **more: Any) -> BenchmarkStep:
    """A step on an instance type."""
    return BenchmarkStep(number=number, instance_type=instance_type, **more)


def completed(number: int, instance_type: str = "ml.small", **metrics: Any) -> BenchmarkStep:
    """A step that was measured."""
    status = RecommendationStatus.COMPLETED
    return step(number, instance_type, status=status, metrics=replace(METRICS, **metrics))


JOB = RecommendationJob(
    scope=SCOPE,
    name="sizes",
    arn=SCOPE.arn("inference-recommendations-job", "sizes"),
    created_at=NOW,
    modified_at=NOW,
    status=RecommendationStatus.PENDING,
    kind=RecommendationJobType.ADVANCED,
    model=MODEL,
    payload=SamplePayload(uri="s3://b/rows.tar.gz", content_types=("text/csv",)),
    traffic=(TrafficPhase(initial_users=1, duration_s=60.0),),
    stopping=StoppingRules(),
    duration_s=3600.0,
    steps=(step(1), step(2, "ml.big", environment={"A": "2", "B": "3"})),
    deadline_at=NOW + 7200.0,
    given={"RoleArn": "arn:aws:iam::111122223333:role/r"},
)
