"""Inference recommendations jobs: descriptions, and meanings of requests."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import Api
from tests.contract.api.sagemaker.recommendation_requests import (
    ARN,
    JOB,
    PHASE,
    STAIRS,
    TYPE,
    environment,
    job_with,
)

from hostelry.base.errors import ServiceError
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.recommendation_job import (
    BenchmarkMetrics,
    BenchmarkStep,
    RecommendationJob,
    RecommendationStatus,
    SamplePayload,
    StoppingRules,
    TrafficPhase,
)
from hostelry.recommendations.traffic import DEFAULT_TRAFFIC, build_stairs

DONE = BenchmarkMetrics(
    invocations_per_minute=1200.7,
    latency_ms=7.2,
    cpu_percent=151.5,
    memory_percent=12.5,
    setup_s=2.4,
)
COMPLETED, FAILED = RecommendationStatus.COMPLETED, RecommendationStatus.FAILED


@pytest.fixture
def job(api: Api) -> Callable[[], RecommendationJob]:
    """The stored job."""

    def stored() -> RecommendationJob:
        found = api.state.recommendation_jobs.get(api.scope, "Job-1")
        assert found is not None
        return found.value

    return stored


def change(api: Api, **fields: Any) -> None:
    """Change the stored job as the reconciler does."""
    found = api.state.recommendation_jobs.get(api.scope, "Job-1")
    assert found is not None
    changed = replace(found.value, **fields)
    api.state.recommendation_jobs.put(api.scope, "Job-1", changed, expect=found.version)


def create(api: Api, params: Mapping[str, Any] = JOB) -> dict[str, Any]:
    return api.call("CreateInferenceRecommendationsJob", **params)


def describe(api: Api) -> dict[str, Any]:
    return api.call("DescribeInferenceRecommendationsJob", JobName="Job-1")


def test_a_new_job_is_described_with_its_request(api: Api) -> None:
    api.make.model()
    given = job_with(
        ("EndpointConfigurations", [TYPE]),
        JobDescription="sizes",
        StoppingConditions={"MaxInvocations": 300},
        Tags=[{"Key": "team", "Value": "a"}],
    )
    assert create(api, given) == {"JobArn": f"{ARN}inference-recommendations-job/job-1"}
    found = describe(api)
    assert found["Status"] == "PENDING"
    assert {it: found[it] for it in given if it != "Tags"} == {
        name: value for name, value in given.items() if name != "Tags"
    }
    assert "InferenceRecommendations" not in found
    assert "CompletionTime" not in found
    tags = api.call("ListTags", ResourceArn=f"{ARN}inference-recommendations-job/job-1")["Tags"]
    assert tags == [{"Key": "team", "Value": "a"}]


@cases(
    "params, fields",
    case(
        "the least",
        JOB,
        {
            "traffic": DEFAULT_TRAFFIC,
            "stopping": StoppingRules(),
            "duration_s": 7200.0,
            "max_parallel": 1,
            "payload": SamplePayload(uri="s3://in/rows.tar.gz", content_types=("text/csv",)),
        },
    ),
    case(
        "phases",
        job_with(("TrafficPattern", {"TrafficType": "PHASES", "Phases": [PHASE]})),
        {"traffic": (TrafficPhase(initial_users=1, users_per_minute=2, duration_s=60.0),)},
    ),
    case(
        "stairs",
        job_with(("TrafficPattern", {"TrafficType": "STAIRS", "Stairs": STAIRS})),
        {"traffic": build_stairs(30.0, 2, 3)},
    ),
    case(
        "conditions to stop",
        job_with(
            StoppingConditions={
                "MaxInvocations": 300,
                "ModelLatencyThresholds": [{"Percentile": "P99", "ValueInMilliseconds": 40}],
                "FlatInvocations": "Continue",
            }
        ),
        {
            "stopping": StoppingRules(
                max_invocations=300, percentile=0.99, latency_ms=40.0, stops_when_flat=False
            )
        },
    ),
    case(
        "limits",
        job_with(("ResourceLimit", {"MaxParallelOfTests": 3}), ("JobDurationInSeconds", 60 * 60)),
        {"max_parallel": 3, "duration_s": 3600.0},
    ),
    case(
        "types of answers",
        job_with(("ContainerConfig.SupportedResponseMIMETypes", ["text/csv", "text/plain"])),
        {
            "payload": SamplePayload(
                uri="s3://in/rows.tar.gz",
                content_types=("text/csv",),
                accept="text/csv, text/plain",
            )
        },
    ),
)
def test_the_meaning_of_a_request(
    api: Api,
    job: Callable[[], RecommendationJob],
    params: Mapping[str, Any],
    fields: Mapping[str, Any],
) -> None:
    api.make.model()
    create(api, params)
    assert {name: getattr(job(), name) for name in fields} == fields


@cases(
    "params, expected",
    case(
        "a Default job chooses types that the machine has",
        {**JOB, "JobType": "Default"},
        [("ml.c5.large", {}), ("ml.c5.xlarge", {}), ("ml.m5.2xlarge", {}), ("ml.m5.4xlarge", {})],
    ),
    case(
        "the types that the model supports",
        job_with(("ContainerConfig.SupportedInstanceTypes", ["ml.t2.medium", "ml.r5.24xlarge"])),
        [("ml.t2.medium", {}), ("ml.r5.24xlarge", {})],
    ),
    case(
        "each value of a variable",
        job_with(("EndpointConfigurations", [environment(A=["1", "2"]), TYPE])),
        [("ml.m5.xlarge", {"A": "1"}), ("ml.m5.xlarge", {}), ("ml.m5.xlarge", {"A": "2"})],
    ),
    case(
        "at most so many tests as asked for",
        job_with(
            ("EndpointConfigurations", [environment(A=["1", "2", "3"])]),
            ("ResourceLimit", {"MaxNumberOfTests": 2}),
        ),
        [("ml.m5.xlarge", {"A": "1"}), ("ml.m5.xlarge", {"A": "2"})],
    ),
)
def test_the_steps_of_a_job(
    api: Api,
    job: Callable[[], RecommendationJob],
    params: Mapping[str, Any],
    expected: list[tuple[str, dict[str, str]]],
) -> None:
    api.make.model()
    create(api, params)
    assert [(it.instance_type, dict(it.environment)) for it in job().steps] == expected
    assert [it.number for it in job().steps] == list(range(1, len(expected) + 1))


def test_an_existing_endpoint_is_measured_first(
    api: Api, job: Callable[[], RecommendationJob]
) -> None:
    api.make.model()
    api.make.endpoint("e", {"ModelName": "m"})
    api.change_endpoint(status=EndpointStatus.IN_SERVICE)
    there = ("Endpoints", [{"EndpointName": "e"}])
    create(api, job_with(there, ("EndpointConfigurations", [TYPE])))
    assert [(it.endpoint_name, it.instance_type) for it in job().steps] == [
        ("e", None),
        (None, "ml.m5.xlarge"),
    ]
    steps = (replace(job().steps[0], status=COMPLETED, metrics=DONE), job().steps[1])
    change(api, steps=steps)
    assert describe(api)["EndpointPerformances"] == [
        {
            "Metrics": {"MaxInvocations": 1200, "ModelLatency": 8},
            "EndpointInfo": {"EndpointName": "e"},
        }
    ]
    found = api.call("ListInferenceRecommendationsJobSteps", JobName="Job-1")["Steps"]
    assert found[0]["InferenceBenchmark"]["EndpointMetrics"]["ModelLatency"] == 8
    assert "EndpointConfiguration" not in found[0]["InferenceBenchmark"]


def test_an_endpoint_alone_needs_no_model(api: Api, job: Callable[[], RecommendationJob]) -> None:
    api.make.model()
    api.make.endpoint("e", {"ModelName": "m"})
    api.change_endpoint(status=EndpointStatus.IN_SERVICE)
    create(api, job_with(("Endpoints", [{"EndpointName": "e"}]), ("ModelName", None)))
    assert [it.endpoint_name for it in job().steps] == ["e"]
    assert job().model is None


def test_results_and_failures_are_shown(api: Api, job: Callable[[], RecommendationJob]) -> None:
    api.make.model()
    create(api, job_with(("EndpointConfigurations", [environment(A=["1", "2"]), TYPE])))
    first, second, third = job().steps
    slow = replace(DONE, invocations_per_minute=60.0, cpu_percent=None, memory_percent=None)
    times: dict[str, Any] = {"load_began_at": 1000.0, "load_ended_at": 1060.0}
    steps: tuple[BenchmarkStep, ...] = (
        replace(first, status=COMPLETED, metrics=slow, **times),
        replace(second, status=FAILED, failure_reason="it crashed"),
        replace(third, status=COMPLETED, metrics=DONE, **times),
    )
    change(api, steps=steps, status=COMPLETED, ended_at=2000.0, deadline_at=None)
    found = describe(api)
    assert (found["Status"], found["CompletionTime"]) == ("COMPLETED", 2000.0)
    best, other = found["InferenceRecommendations"]
    assert best["Metrics"] == {
        "MaxInvocations": 1200,
        "ModelLatency": 8,
        "CpuUtilization": 151.5,
        "MemoryUtilization": 12.5,
        "ModelSetupTime": 3,
    }
    assert best["EndpointConfiguration"] == {
        "EndpointName": "recommendation-job/Job-1/3",
        "VariantName": "AllTraffic",
        "InstanceType": "ml.m5.xlarge",
        "InitialInstanceCount": 1,
    }
    assert (best["InvocationStartTime"], best["InvocationEndTime"]) == (1000.0, 1060.0)
    assert other["ModelConfiguration"] == {
        "EnvironmentParameters": [{"Key": "A", "ValueType": "String", "Value": "1"}]
    }
    assert "CpuUtilization" not in other["Metrics"], "it was not measured"
    found = api.call(
        "ListInferenceRecommendationsJobSteps",
        JobName="Job-1",
        Status="FAILED",
        StepType="BENCHMARK",
    )
    (failed,) = found["Steps"]
    assert failed["InferenceBenchmark"]["FailureReason"] == "it crashed"
    assert "Metrics" not in failed["InferenceBenchmark"]


def test_steps_are_listed_in_pages(api: Api) -> None:
    api.make.model()
    create(api, job_with(("EndpointConfigurations", [environment(A=["1", "2", "3"])])))
    seen, token = [], None
    while True:
        more: dict[str, Any] = {} if token is None else {"NextToken": token}
        found = api.call(
            "ListInferenceRecommendationsJobSteps", JobName="Job-1", MaxResults=1, **more
        )
        seen += found["Steps"]
        token = found.get("NextToken")
        if token is None:
            break
    values = [
        shown["InferenceBenchmark"]["ModelConfiguration"]["EnvironmentParameters"] for shown in seen
    ]
    assert [it[0]["Value"] for it in values] == ["1", "2", "3"]


def test_jobs_are_listed_by_model(api: Api) -> None:
    api.make.model()
    api.make.model("other")
    create(api)
    create(api, job_with(("ModelName", "other"), JobName="Job-2"))
    listed = api.call("ListInferenceRecommendationsJobs", ModelNameEquals="other")
    (found,) = listed["InferenceRecommendationsJobs"]
    assert (found["JobName"], found["ModelName"], found["JobDescription"]) == ("Job-2", "other", "")
    assert found["SamplePayloadUrl"] == "s3://in/rows.tar.gz"
    arn = f"{ARN}model-package/p/1"
    listed = api.call("ListInferenceRecommendationsJobs", ModelPackageVersionArnEquals=arn)
    assert listed["InferenceRecommendationsJobs"] == []


def test_a_stop_may_be_repeated_and_is_refused_after_the_end(api: Api) -> None:
    api.make.model()
    create(api)
    for _ in range(2):
        assert api.call("StopInferenceRecommendationsJob", JobName="Job-1") == {}
        assert describe(api)["Status"] == "STOPPING"
    change(api, status=RecommendationStatus.STOPPED)
    assert "is in status STOPPED" in api.refusal("StopInferenceRecommendationsJob", JobName="Job-1")


@cases(
    "operation, code",
    case("describe", "DescribeInferenceRecommendationsJob", "ResourceNotFound"),
    case("stop", "StopInferenceRecommendationsJob", "ResourceNotFound"),
    case("steps", "ListInferenceRecommendationsJobSteps", "ResourceNotFound"),
)
def test_an_unknown_job(api: Api, operation: str, code: str) -> None:
    with pytest.raises(ServiceError) as caught:
        api.call(operation, JobName="Job-1")
    assert caught.value.code == code


def test_a_name_is_used_once_in_any_case_of_letters(api: Api) -> None:
    api.make.model()
    create(api)
    with pytest.raises(ServiceError) as caught:
        create(api, {**JOB, "JobName": "job-1"})
    assert caught.value.code == "ResourceInUse"
