"""AI recommendation jobs: descriptions, results, lists, ends and refusals."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import ROLE, Api

from hostelry.base.errors import ServiceError
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.hidden_endpoint import HiddenKind
from hostelry.domain.model import SourceKind
from hostelry.domain.recommendation_job import (
    BenchmarkMetrics,
    LlmMeasures,
    LlmObjective,
    RecommendationJob,
    RecommendationStatus,
)
from hostelry.fleet.shapes import instance_types
from hostelry.reconcile.recommendation_jobs import RecommendationJobs

ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
SPEC: Mapping[str, Any] = {
    "benchmark": {"type": "aiperf"},
    "parameters": {"prompt_input_tokens_mean": 550, "output_tokens_mean": 150, "concurrency": 64},
}
TYPES = ["ml.g5.xlarge", "ml.m5.xlarge"]
JOB: Mapping[str, Any] = {
    "AIRecommendationJobName": "Job-1",
    "ModelSource": {"S3": {"S3Uri": "s3://models/chat/"}},
    "OutputConfig": {"S3OutputLocation": "s3://out/results"},
    "AIWorkloadConfigIdentifier": "short",
    "PerformanceTarget": {"Constraints": [{"Metric": "throughput"}]},
    "RoleArn": ROLE,
    "ComputeSpec": {"InstanceTypes": TYPES},
}
NAME = {"AIRecommendationJobName": "Job-1"}
LLM = LlmMeasures(
    concurrency=16,
    requests_per_s=2.0,
    tokens_per_s=300.0,
    latency_ms={"p50": 900.0, "p99": 1200.0},
    first_token_ms={"p50": 95.5},
    token_ms={},
)


def job_with(**more: Any) -> dict[str, Any]:
    """JOB with more members, or others."""
    return {**copy.deepcopy(dict(JOB)), **more}


def workload(api: Api, name: str, **parameters: Any) -> None:
    """Create a workload with further parameters."""
    spec = {**SPEC, "parameters": {**SPEC["parameters"], **parameters}}
    given = {"WorkloadSpec": {"Inline": json.dumps(spec)}}
    api.call("CreateAIWorkloadConfig", AIWorkloadConfigName=name, AIWorkloadConfigs=given)


@pytest.fixture(autouse=True)
def there(api: Api) -> None:
    """A workload."""
    workload(api, "short")


def stored(api: Api) -> RecommendationJob:
    found = api.state.ai_recommendation_jobs.get(api.scope, "Job-1")
    assert found is not None
    return found.value


def change(api: Api, name: str = "Job-1", **fields: Any) -> None:
    """Change the record of a job."""
    found = api.state.ai_recommendation_jobs.get(api.scope, name)
    assert found is not None
    changed = replace(found.value, **fields)
    api.state.ai_recommendation_jobs.put(api.scope, name, changed, expect=found.version)


def describe(api: Api) -> dict[str, Any]:
    return api.call("DescribeAIRecommendationJob", **NAME)


def refusal_code(api: Api, operation: str, **params: Any) -> str:
    with pytest.raises(ServiceError) as caught:
        api.call(operation, **params)
    return caught.value.code


def test_a_new_job_is_described_with_its_request(api: Api) -> None:
    arn = f"{ARN}ai-recommendation-job/job-1"
    given = job_with(
        Tags=[{"Key": "team", "Value": "a"}],
        InferenceSpecification={"Framework": "VLLM"},
        OptimizeModel=False,
    )
    assert api.call("CreateAIRecommendationJob", **given) == {"AIRecommendationJobArn": arn}
    assert describe(api) == {
        **given,
        "AIRecommendationJobArn": arn,
        "AIRecommendationJobStatus": "InProgress",
        "CreationTime": api.clock.now(),
    }
    job = stored(api)
    assert [it.instance_type for it in job.steps] == TYPES
    assert job.search is not None
    assert (job.search.objective, job.search.workload.concurrency) == (LlmObjective.THROUGHPUT, 64)
    assert job.model is not None
    (container,) = job.model.containers
    assert container.image.endswith("/vllm:0.11.2-gpu-py312-cu129-ubuntu22.04-sagemaker")
    assert api.call("ListModels")["Models"] == [], "the job's model is its own"


@cases(
    "uri, expected, kind",
    case("an archive", "s3://models/chat.tar.gz", "s3://models/chat.tar.gz", SourceKind.ARCHIVE),
    case("a prefix", "s3://models/chat/", "s3://models/chat/", SourceKind.PREFIX),
    case("a prefix without a slash", "s3://models/chat", "s3://models/chat/", SourceKind.PREFIX),
)
def test_a_source(api: Api, uri: str, expected: str, kind: SourceKind) -> None:
    api.call("CreateAIRecommendationJob", **job_with(ModelSource={"S3": {"S3Uri": uri}}))
    model = stored(api).model
    assert model is not None
    (container,) = model.containers
    assert container.source is not None
    assert (container.source.uri, container.source.kind) == (expected, kind)
    assert "/djl-inference:" in container.image


def test_the_platform_chooses_instance_types(api: Api) -> None:
    given = job_with()
    del given["ComputeSpec"]
    api.call("CreateAIRecommendationJob", **given)
    chosen = [it.instance_type for it in stored(api).steps]
    assert 1 <= len(chosen) <= 3
    assert set(chosen) <= set(instance_types())


@cases(
    "params, expected",
    case(
        "a model of the hub",
        {"ModelSource": {"S3": {}}},
        "ModelSource.S3.S3Uri is required",
    ),
    case(
        "a source elsewhere",
        {"ModelSource": {"S3": {"S3Uri": "https://example.com/m"}}},
        "Give it as s3://bucket/key",
    ),
    case("no place for results", {"OutputConfig": {}}, "OutputConfig.S3OutputLocation is required"),
    case(
        "a model package",
        {"OutputConfig": {"S3OutputLocation": "s3://o", "ModelPackageGroupIdentifier": "g"}},
        "OutputConfig.ModelPackageGroupIdentifier is not supported",
    ),
    case("an optimization", {"OptimizeModel": True}, "OptimizeModel=true is not supported"),
    case(
        "adapters",
        {"AdapterSource": {"S3Uris": [{"AdapterId": "es", "S3Uri": "s3://models/es/"}]}},
        "AdapterSource is not supported",
    ),
    case(
        "two objectives",
        {"PerformanceTarget": {"Constraints": [{"Metric": "cost"}, {"Metric": "ttft-ms"}]}},
        "PerformanceTarget.Constraints has 2 entries; give one Metric",
    ),
    case(
        "no objective",
        {"PerformanceTarget": {"Constraints": []}},
        "PerformanceTarget.Constraints has 0 entries",
    ),
    case(
        "a type that nobody knows",
        {"ComputeSpec": {"InstanceTypes": ["ml.nope.large"]}},
        'InstanceTypes has "ml.nope.large"',
    ),
    case(
        "a role that nobody made",
        {"RoleArn": "arn:aws:iam::123456789012:role/other"},
        "Could not assume role",
    ),
    case(
        "a rate of requests",
        {"AIWorkloadConfigIdentifier": "rate"},
        "has request_rate; the job searches the highest number of users",
    ),
)
def test_a_job_that_is_refused(api: Api, params: Mapping[str, Any], expected: str) -> None:
    workload(api, "rate", request_rate=2.0)
    assert expected in api.refusal("CreateAIRecommendationJob", **job_with(**params))
    assert api.state.ai_recommendation_jobs.list() == []


def test_a_job_needs_a_workload(api: Api) -> None:
    given = job_with(AIWorkloadConfigIdentifier="nope")
    assert refusal_code(api, "CreateAIRecommendationJob", **given) == "ResourceNotFound"


def test_the_lowest_cost_needs_prices(api: Api) -> None:
    given = job_with(PerformanceTarget={"Constraints": [{"Metric": "cost"}]})
    refused = api.refusal("CreateAIRecommendationJob", **given)
    assert "the price of ml.g5.xlarge is not known; add it to prices.toml" in refused


def test_limits_are_for_recommendation_jobs(api: Api) -> None:
    workload(api, "limited", goodput="time_to_first_token:500")
    api.call("CreateAIRecommendationJob", **job_with(AIWorkloadConfigIdentifier="limited"))
    search = stored(api).search
    assert search is not None
    assert search.workload.first_token_limit_ms == 500.0
    refused = api.refusal(
        "CreateAIBenchmarkJob",
        AIBenchmarkJobName="b",
        BenchmarkTarget={"Endpoint": {"Identifier": "e"}},
        OutputConfig={"S3OutputLocation": "s3://out"},
        AIWorkloadConfigIdentifier="limited",
        RoleArn=ROLE,
    )
    assert "has goodput, the limits of an AI recommendation job" in refused


def test_results_are_described_the_best_first(api: Api) -> None:
    api.call("CreateAIRecommendationJob", **JOB)
    small, large = stored(api).steps
    metrics = BenchmarkMetrics(
        invocations_per_minute=120.0, latency_ms=1100.0, setup_s=20.5, llm=LLM
    )
    slower = replace(metrics, llm=replace(LLM, tokens_per_s=250.0))
    completed = RecommendationStatus.COMPLETED
    steps = (
        replace(small, status=completed, metrics=slower),
        replace(large, status=completed, metrics=metrics),
    )
    change(api, steps=steps, status=completed, started_at=2.0, ended_at=9.0)
    found = describe(api)
    assert (found["AIRecommendationJobStatus"], found["StartTime"], found["EndTime"]) == (
        "Completed", 2.0, 9.0,
    )  # fmt: skip
    first, second = found["Recommendations"]
    assert first["DeploymentConfiguration"]["InstanceType"] == "ml.m5.xlarge"
    assert second["DeploymentConfiguration"]["InstanceType"] == "ml.g5.xlarge"
    assert first["DeploymentConfiguration"]["S3"] == [
        {"ChannelName": "model", "Uri": "s3://models/chat/"}
    ]
    assert first["ModelDetails"]["InstanceDetails"] == [
        {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "CopyCountPerInstance": 1}
    ]
    rows = {(it["Metric"], it.get("Stat")): it["Value"] for it in first["ExpectedPerformance"]}
    assert rows == {
        ("concurrency", None): "16",
        ("request-throughput", "mean"): "2",
        ("throughput", "mean"): "300",
        ("ttft-ms", "p50"): "95.5",
        ("request-latency-ms", "p50"): "900",
        ("request-latency-ms", "p99"): "1200",
        ("model-setup-time", None): "20.5",
    }, "no price is known, so there is no cost"


def test_the_cause_of_an_instance_types_failure_is_described(api: Api) -> None:
    api.call("CreateAIRecommendationJob", **JOB)
    small, large = stored(api).steps
    failed = replace(small, status=RecommendationStatus.FAILED, failure_reason="No place.")
    change(api, steps=(failed, large))
    found = describe(api)
    assert found["AIRecommendationJobStatus"] == "InProgress"
    assert found["FailureReason"] == "ml.g5.xlarge: No place."
    assert "Recommendations" not in found


def test_a_job_is_stopped_and_deleted(api: Api) -> None:
    arn = {"AIRecommendationJobArn": f"{ARN}ai-recommendation-job/job-1"}
    api.call("CreateAIRecommendationJob", **JOB)
    assert refusal_code(api, "CreateAIRecommendationJob", **JOB) == "ResourceInUse"
    assert "is in status InProgress" in api.refusal("DeleteAIRecommendationJob", **NAME)
    in_use = refusal_code(api, "DeleteAIWorkloadConfig", AIWorkloadConfigName="short")
    assert in_use == "ResourceInUse"
    for _ in range(2):
        assert api.call("StopAIRecommendationJob", **NAME) == arn
    assert describe(api)["AIRecommendationJobStatus"] == "Stopping"
    jobs = RecommendationJobs(
        api.state,
        api.clock,
        dict,
        lambda name: instance_types()[name].shape,
        kind=HiddenKind.AI_RECOMMENDATION,
    )
    jobs.loop.one_pass()
    assert describe(api)["AIRecommendationJobStatus"] == "Stopped"
    assert "is in status Stopped" in api.refusal("StopAIRecommendationJob", **NAME)
    api.call("DeleteAIWorkloadConfig", AIWorkloadConfigName="short")
    assert api.call("DeleteAIRecommendationJob", **NAME) == arn
    for operation in ("Describe", "Stop", "Delete"):
        assert refusal_code(api, f"{operation}AIRecommendationJob", **NAME) == "ResourceNotFound"


def test_a_job_with_an_endpoint_is_not_deleted(api: Api) -> None:
    api.call("CreateAIRecommendationJob", **JOB)
    api.make.endpoint("e")
    api.change_endpoint("e", status=EndpointStatus.DELETING)
    left = api.state.endpoints.get(api.scope, "e")
    assert left is not None
    hidden = "ai-recommendation-job/Job-1/1"
    api.state.endpoints.put(api.scope, hidden, replace(left.value, name=hidden), expect=None)
    change(api, status=RecommendationStatus.STOPPED, ended_at=9.0)
    assert "still has an endpoint" in api.refusal("DeleteAIRecommendationJob", **NAME)
    assert stored(api).is_over


def test_jobs_are_listed_by_the_status_that_clients_see(api: Api) -> None:
    for number in range(3):
        given = job_with(AIRecommendationJobName=f"job-{number}")
        api.call("CreateAIRecommendationJob", **given)
        api.clock.advance(1.0)
    change(api, "job-0", status=RecommendationStatus.IN_PROGRESS)
    change(api, "job-1", status=RecommendationStatus.FAILED, ended_at=9.0, failure_reason="no")
    member = "AIRecommendationJobs"
    (failed,) = api.call("ListAIRecommendationJobs", StatusEquals="Failed")[member]
    assert (failed["AIRecommendationJobName"], failed["EndTime"]) == ("job-1", 9.0)
    going = api.call("ListAIRecommendationJobs", StatusEquals="InProgress", SortBy="Name")[member]
    assert [it["AIRecommendationJobName"] for it in going] == ["job-2", "job-0"]
    first = api.call("ListAIRecommendationJobs", MaxResults=2)
    rest = api.call("ListAIRecommendationJobs", MaxResults=2, NextToken=first["NextToken"])
    assert len([*first[member], *rest[member]]) == 3
