"""AI benchmark jobs: each measures an LLM on an existing endpoint under a described workload.

Source: CreateAIWorkloadConfig, CreateAIBenchmarkJob and DescribeAIBenchmarkJob in the SageMaker API
reference.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from hostelry.domain.scope import Scope

MAX_LOAD_S = 7_200.0  # of the load of a job
RESULTS = "results.json"


class AiBenchmarkStatus(Enum):
    """AIBenchmarkJobStatus."""

    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


class AiWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of a benchmark. The names of parameters are AIPerf's options.

    Lengths of prompts and answers have normal distributions. Without `output_tokens_mean` the model
    decides about its answers. Without `request_rate_per_s`, each of `concurrency` users sends a
    request after the answer to the request before. The load ends after `request_count` answers, or
    after `duration_s`, whichever comes first. Answers to the first `warm_up_count` requests are not
    measured. The limits are for a search of the highest concurrency.
    """

    prompt_tokens_mean: float
    prompt_tokens_stddev: float = 0.0
    output_tokens_mean: float | None = None
    output_tokens_stddev: float = 0.0
    concurrency: int = 1
    request_rate_per_s: float | None = None
    request_count: int | None = None
    duration_s: float = MAX_LOAD_S
    warm_up_count: int = 0
    seed: int = 0
    latency_limit_ms: float | None = None
    first_token_limit_ms: float | None = None
    token_limit_ms: float | None = None

    @property
    def has_limits(self) -> bool:
        """Whether answers must keep a limit."""
        limits = (self.latency_limit_ms, self.first_token_limit_ms, self.token_limit_ms)
        return any(it is not None for it in limits)


class AiWorkloadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that jobs name. It never changes."""

    scope: Scope
    name: str
    arn: str
    created_at: float
    workload: AiWorkload
    given: Mapping[str, Any]


class AiBenchmarkJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job.

    `workload` is a copy. `endpoint_created_at` identifies the endpoint. Without `component_names`
    its only variant gets the requests, else the components in turn. `output_uri` is the prefix of
    the results. `deadline_at` is when the current status fails, or None if it is final.
    """

    scope: Scope
    name: str
    arn: str
    created_at: float
    modified_at: float
    status: AiBenchmarkStatus
    workload_name: str
    workload: AiWorkload
    endpoint_name: str
    endpoint_created_at: float
    component_names: tuple[str, ...] = ()
    output_uri: str
    chain_length: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    deadline_at: float | None = None
    failure_reason: str | None = None
    given: Mapping[str, Any]

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.ended_at is not None

    @property
    def results_uri(self) -> str:
        """The object with the results."""
        return f"{self.output_uri.rstrip('/')}/{self.name}/{RESULTS}"


class AiBenchmarkSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs whose load is to be sent now. `version` is a digest of them."""

    version: str
    jobs: tuple[AiBenchmarkJob, ...]


class AiBenchmarkEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The runner's report of the end of a job. With a `reason` the job failed.

    `created_at` distinguishes the job from a later job with the same name.
    """

    scope: Scope
    name: str
    created_at: float
    reason: str | None = None
