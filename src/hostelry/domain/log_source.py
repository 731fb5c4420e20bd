"""Sources of log events: copies, and the data logs of jobs and endpoints."""

from pathlib import Path

import msgspec

from hostelry.domain.copy import Copy, CopySpec, Instance
from hostelry.domain.hidden_endpoint import (
    HiddenKind,
    find_hidden_kind,
    get_job_name,
    get_owner,
    is_hidden,
)
from hostelry.domain.scope import Scope

# A source of log events is a copy. Its output goes to a log group and a log stream.
#
# Source: SageMaker developer guide, "Log groups and streams that SageMaker AI sends to CloudWatch
# Logs". AWS documents no streams of components, so they are named as streams of containers.


COMPONENT_OWNER = "component/"
TRANSFORM_GROUP = "/aws/sagemaker/TransformJobs"
RECOMMENDATION_GROUP = "/aws/sagemaker/InferenceRecommendationsJobs"
AI_RECOMMENDATION_GROUP = "/aws/sagemaker/AIRecommendationJobs"
AI_BENCHMARK_GROUP = "/aws/sagemaker/AIBenchmarkJobs"
AI_BENCHMARK = "ai-benchmark-job/"  # before the name of a job, in place of an endpoint's name
JOB_GROUPS = {
    HiddenKind.TRANSFORM: TRANSFORM_GROUP,
    HiddenKind.RECOMMENDATION: RECOMMENDATION_GROUP,
    HiddenKind.AI_RECOMMENDATION: AI_RECOMMENDATION_GROUP,
}


class LogSource(msgspec.Struct, frozen=True, kw_only=True):
    """A copy as a source of log events. On a model endpoint it has no `component_name`.

    `instance_made_at` is in seconds since the epoch, and used only in streams of jobs.
    `container` is the name of the copy's container, if its model has several.
    """

    scope: Scope
    endpoint_name: str
    variant_name: str
    component_name: str | None
    instance_id: str
    copy_id: str
    instance_made_at: float = 0.0
    container: str | None = None

    @property
    def group(self) -> str:
        """The log group."""
        if self.component_name is not None:
            return component_group(self.component_name)
        return endpoint_group(self.endpoint_name)

    @property
    def stream(self) -> str:
        """The log stream of an instance, of a container on it, or of a component's copy."""
        if is_hidden(self.endpoint_name):
            owner = get_owner(self.endpoint_name)
            of_instance = f"{owner}/{self.instance_id}-{self.instance_made_at:.0f}"
        else:
            of_instance = f"{self.variant_name}/{self.instance_id}"
        part = self.container if self.component_name is None else self.copy_id
        return of_instance if part is None else f"{of_instance}/{part}"


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a copy's output. `is_ended` is True once the copy is gone."""

    source: LogSource
    path: Path
    is_ended: bool = False


def parse_source(instance: Instance, spec: CopySpec) -> LogSource:
    """The log source for the copy with `spec` on `instance`."""
    owner = spec.owner
    is_component = owner.startswith(COMPONENT_OWNER)
    return LogSource(
        scope=instance.scope,
        endpoint_name=instance.endpoint_name,
        variant_name=instance.variant_name,
        component_name=owner.removeprefix(COMPONENT_OWNER) if is_component else None,
        instance_id=instance.id,
        copy_id=spec.id,
        instance_made_at=instance.created_at,
        container=spec.container.hostname,
    )


def get_copy_source(copy: Copy) -> LogSource:
    """The log source for a recorded copy."""
    return LogSource(
        scope=copy.scope,
        endpoint_name=copy.endpoint_name,
        variant_name=copy.variant_name,
        component_name=copy.component_name,
        instance_id=copy.instance_id,
        copy_id=copy.spec.id,
        instance_made_at=copy.instance_made_at,
        container=copy.spec.container.hostname,
    )


def component_group(component_name: str) -> str:
    """The log group of an inference component."""
    return f"/aws/sagemaker/InferenceComponents/{component_name}"


def endpoint_group(endpoint_name: str) -> str:
    """The log group of a model endpoint. All jobs of a kind share a group."""
    kind = find_hidden_kind(endpoint_name)
    return f"/aws/sagemaker/Endpoints/{endpoint_name}" if kind is None else JOB_GROUPS[kind]


# A data log has lines about requests and records, written outside of the container that gets them.
#
# Source: SageMaker developer guide, "Log groups and streams that SageMaker AI sends to CloudWatch
# Logs". The names of these streams end in ``/data-log``.


SUFFIX = "/data-log"


class DataLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line. `at` is in seconds since the epoch.

    `copy_id` is set if the line is about a copy, `variant_name` once a variant is chosen.
    """

    scope: Scope
    endpoint_name: str
    variant_name: str
    copy_id: str | None = None
    at: float
    text: str


class DataLogReport(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a process that started at `started_at`. Repeats have the same `sequence`."""

    started_at: float
    sequence: int
    lines: tuple[DataLine, ...]


def get_stream(line: DataLine, source: LogSource | None) -> tuple[str, str]:
    """Return the group and the stream of a line. `source` is the line's copy, if it is known."""
    if source is not None:
        return source.group, source.stream + SUFFIX
    name = line.endpoint_name
    if name.startswith(AI_BENCHMARK):
        return AI_BENCHMARK_GROUP, execution_stream(name.removeprefix(AI_BENCHMARK))
    if find_hidden_kind(name) in (HiddenKind.RECOMMENDATION, HiddenKind.AI_RECOMMENDATION):
        return endpoint_group(name), execution_stream(get_job_name(name))
    first = get_job_name(name) if is_hidden(name) else line.variant_name
    return endpoint_group(name), (first + SUFFIX).removeprefix("/")


def execution_stream(job_name: str) -> str:
    """The stream with the progress of a recommendations or AI benchmark job."""
    return f"{job_name}/execution"
