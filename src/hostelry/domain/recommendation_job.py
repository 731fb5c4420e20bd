"""A recommendations job: it measures a model on instance types, one step for each.

An inference recommendations job sends a sample payload. An AI recommendation job searches the
highest concurrency of an LLM.

Source: CreateInferenceRecommendationsJob, DescribeInferenceRecommendationsJob,
ListInferenceRecommendationsJobSteps and CreateAIRecommendationJob in the SageMaker API reference.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from hostelry.domain.ai_benchmark_job import RESULTS, AiWorkload
from hostelry.domain.hidden_endpoint import HiddenKind
from hostelry.domain.model import Model
from hostelry.domain.scope import Scope

VARIANT_NAME = "AllTraffic"
DEFAULT_PERCENTILE = 0.95
SEARCH_S = 3_600.0  # the longest search of an LLM's step


class RecommendationJobType(Enum):
    """JobType: who chooses the instance types and the traffic."""

    DEFAULT = "Default"  # the platform
    ADVANCED = "Advanced"  # the request


class RecommendationStatus(Enum):
    """Status of a job or of a step, without AWS's DELETING and DELETED, which never occur here."""

    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"

    @property
    def is_over(self) -> bool:
        """Whether nothing follows."""
        return self in OVER


OVER = frozenset(
    {
        RecommendationStatus.COMPLETED,
        RecommendationStatus.FAILED,
        RecommendationStatus.STOPPED,
    }
)


class TrafficPhase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of the load. It begins with `initial_users`, and new users come at an even rate.

    A user sends a request after the answer to the request before.
    """

    initial_users: int
    users_per_minute: int = 0
    duration_s: float


class StoppingRules(msgspec.Struct, frozen=True, kw_only=True):
    """StoppingConditions. The load ends when one of them holds.

    `max_invocations` are per minute. `latency_ms` limits the latency at `percentile`, from 0 to 1.
    """

    max_invocations: int | None = None
    percentile: float = DEFAULT_PERCENTILE
    latency_ms: float | None = None
    stops_when_flat: bool = True


class SamplePayload(msgspec.Struct, frozen=True, kw_only=True):
    """The .tar.gz at `uri`, whose files are the bodies of requests.

    A file has the content type of its name if that is among `content_types`, else the first of
    them. `accept` is the value of the Accept header.
    """

    uri: str
    content_types: tuple[str, ...]
    accept: str | None = None


class LlmObjective(Enum):
    """AIRecommendationMetric: the measure by which recommendations are ordered."""

    FIRST_TOKEN = "ttft-ms"  # the least time to the first token
    THROUGHPUT = "throughput"  # the most tokens per second
    COST = "cost"  # the lowest price of a token


class LlmSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The load of an AI recommendation job: the search of the highest concurrency.

    The search tries at most the concurrency of `workload`. `output_uri` is the prefix of the
    results.
    """

    workload_name: str
    workload: AiWorkload
    objective: LlmObjective
    output_uri: str
    chain_length: int = 0


class LlmMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of an LLM at the highest concurrency within the limits.

    Times have the statistics p50, p90, p99, max and mean. Without samples they are empty.
    """

    concurrency: int
    requests_per_s: float
    tokens_per_s: float
    latency_ms: Mapping[str, float]
    first_token_ms: Mapping[str, float]
    token_ms: Mapping[str, float]


class BenchmarkMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The measures at the best load. Values that could not be measured are missing (None).

    `cpu_percent` is 100 for each busy CPU, as the metric CPUUtilization. `setup_s` is the time
    until the endpoint served. `llm` is set for an AI recommendation job.
    """

    invocations_per_minute: float
    latency_ms: float
    cpu_percent: float | None = None
    memory_percent: float | None = None
    setup_s: float | None = None
    llm: LlmMeasures | None = None


class BenchmarkStep(msgspec.Struct, frozen=True, kw_only=True):
    """One load test: of an instance type and an environment, or of the client's endpoint.

    `endpoint_created_at` identifies the client's endpoint. `begun_at` is when its hidden endpoint
    was first wanted, `served_at` when an endpoint first served, `unserved_since` when its last copy
    stopped serving. `load_began_at` and `load_ended_at` are the first and last request.
    """

    number: int
    status: RecommendationStatus = RecommendationStatus.PENDING
    instance_type: str | None = None
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    endpoint_name: str | None = None
    endpoint_created_at: float | None = None
    begun_at: float | None = None
    served_at: float | None = None
    unserved_since: float | None = None
    load_began_at: float | None = None
    load_ended_at: float | None = None
    metrics: BenchmarkMetrics | None = None
    failure_reason: str | None = None


class RecommendationJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job. With `search` it is an AI recommendation job, else it has a `payload`.

    `model` is a copy, None if only a client's endpoint is measured. At most `max_parallel` steps
    have instances at once. `duration_s` limits the job from its start. `deadline_at` is when the
    current status fails, or None if it is final.
    """

    scope: Scope
    name: str
    arn: str
    created_at: float
    modified_at: float
    status: RecommendationStatus
    kind: RecommendationJobType
    model: Model | None
    payload: SamplePayload | None = None
    traffic: tuple[TrafficPhase, ...] = ()
    stopping: StoppingRules = StoppingRules()
    search: LlmSearch | None = None
    duration_s: float
    max_parallel: int = 1
    steps: tuple[BenchmarkStep, ...]
    started_at: float | None = None
    ended_at: float | None = None
    deadline_at: float | None = None
    failure_reason: str | None = None
    given: Mapping[str, Any]

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.status.is_over

    @property
    def until_at(self) -> float | None:
        """When its duration is over. None before its start."""
        return None if self.started_at is None else self.started_at + self.duration_s

    @property
    def hidden_kind(self) -> HiddenKind:
        """The kind of its endpoints."""
        return HiddenKind.RECOMMENDATION if self.search is None else HiddenKind.AI_RECOMMENDATION

    def hidden_name(self, step: BenchmarkStep) -> str:
        """The name of a step's hidden endpoint."""
        return f"{self.hidden_kind.value}{self.name}/{step.number}"

    def measured_endpoint(self, step: BenchmarkStep) -> str:
        """The name of the endpoint that gets a step's requests."""
        return step.endpoint_name or self.hidden_name(step)


class BenchmarkTask(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a step, to be sent until `until_at`. It has a `payload` or a `search`.

    `job_created_at` distinguishes the job from a later job with the same name.
    """

    scope: Scope
    job_name: str
    job_created_at: float = 0.0
    number: int
    endpoint_name: str
    payload: SamplePayload | None = None
    traffic: tuple[TrafficPhase, ...] = ()
    stopping: StoppingRules = StoppingRules()
    search: LlmSearch | None = None
    until_at: float

    @property
    def results_uri(self) -> str:
        """The object with the results of a search."""
        assert self.search is not None, "only a search writes results"
        prefix = self.search.output_uri.rstrip("/")
        return f"{prefix}/{self.job_name}/{self.number}/{RESULTS}"


class BenchmarkSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The loads to be sent now. `version` is a digest of them."""

    version: str
    tasks: tuple[BenchmarkTask, ...]


class BenchmarkLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The measured part of a step's load with the most invocations within the limits."""

    began_at: float
    ended_at: float
    invocations_per_minute: float
    latency_ms: float
    num_users: int
    llm: LlmMeasures | None = None


class BenchmarkEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The runner's report of the end of a step. Without `best` the step failed, for `reason`.

    `job_created_at` is missing (None) if no later job can have the same name.
    """

    scope: Scope
    job_name: str
    job_created_at: float | None = None
    number: int
    load_began_at: float | None = None
    load_ended_at: float | None = None
    best: BenchmarkLoad | None = None
    reason: str | None = None
