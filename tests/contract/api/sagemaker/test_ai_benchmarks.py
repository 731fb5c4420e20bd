"""AI workload configurations and AI benchmark jobs: descriptions, lists, ends and refusals."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import ROLE, Api

from hostelry.base.errors import ServiceError
from hostelry.domain.ai_benchmark_job import AiBenchmarkJob, AiBenchmarkStatus, AiWorkload
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.scope import Scope
from hostelry.reconcile.ai_benchmark_jobs import AiBenchmarkJobs

ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
SPEC: Mapping[str, Any] = {
    "benchmark": {"type": "aiperf"},
    "parameters": {"prompt_input_tokens_mean": 550, "output_tokens_mean": 150, "concurrency": 4},
}
CONFIG: Mapping[str, Any] = {
    "AIWorkloadConfigName": "Short-1",
    "AIWorkloadConfigs": {"WorkloadSpec": {"Inline": json.dumps(SPEC)}},
}
JOB: Mapping[str, Any] = {
    "AIBenchmarkJobName": "Job-1",
    "BenchmarkTarget": {"Endpoint": {"Identifier": "e"}},
    "OutputConfig": {"S3OutputLocation": "s3://out/results"},
    "AIWorkloadConfigIdentifier": "Short-1",
    "RoleArn": ROLE,
}


def job_with(*components: str, identifier: str = "e", **more: Any) -> dict[str, Any]:
    """JOB with components, another endpoint, and more members."""
    params = copy.deepcopy(dict(JOB))
    params["BenchmarkTarget"]["Endpoint"]["Identifier"] = identifier
    if components:
        found = [{"Identifier": it} for it in components]
        params["BenchmarkTarget"]["Endpoint"]["InferenceComponents"] = found
    return {**params, **more}


def config_with(inline: str) -> dict[str, Any]:
    """CONFIG with another specification."""
    return {**CONFIG, "AIWorkloadConfigs": {"WorkloadSpec": {"Inline": inline}}}


@pytest.fixture(autouse=True)
def there(api: Api) -> None:
    """A configuration, a model endpoint "e", and an endpoint "shared" with component "base"."""
    api.call("CreateAIWorkloadConfig", **CONFIG)
    api.make.model()
    api.make.endpoint("e", {"ModelName": "m"})
    api.make.endpoint("shared")
    for name in ("e", "shared"):
        api.change_endpoint(name, status=EndpointStatus.IN_SERVICE)
    api.make.component("base", "shared")
    api.change_component("base", status=ComponentStatus.IN_SERVICE)


def stored(api: Api) -> AiBenchmarkJob:
    found = api.state.ai_benchmark_jobs.get(api.scope, "Job-1")
    assert found is not None
    return found.value


def describe(api: Api) -> dict[str, Any]:
    return api.call("DescribeAIBenchmarkJob", AIBenchmarkJobName="Job-1")


def refusal_code(api: Api, operation: str, **params: Any) -> str:
    with pytest.raises(ServiceError) as caught:
        api.call(operation, **params)
    return caught.value.code


def test_a_configuration_is_described_with_its_request(api: Api) -> None:
    arn = f"{ARN}ai-workload-config/long"
    tags = [{"Key": "team", "Value": "a"}]
    given = {**CONFIG, "AIWorkloadConfigName": "long", "Tags": tags}
    assert api.call("CreateAIWorkloadConfig", **given) == {"AIWorkloadConfigArn": arn}
    found = api.call("DescribeAIWorkloadConfig", AIWorkloadConfigName="long")
    assert found == {
        **given, "AIWorkloadConfigArn": arn, "CreationTime": api.clock.now(), "Tags": tags
    }  # fmt: skip
    listed = api.call("ListAIWorkloadConfigs", SortBy="Name", SortOrder="Ascending")
    assert [it["AIWorkloadConfigName"] for it in listed["AIWorkloadConfigs"]] == ["Short-1", "long"]
    assert api.call("DeleteAIWorkloadConfig", AIWorkloadConfigName="long") == {
        "AIWorkloadConfigArn": arn
    }
    code = refusal_code(api, "DescribeAIWorkloadConfig", AIWorkloadConfigName="long")
    assert code == "ResourceNotFound"
    assert api.state.tags.get(api.scope, arn) is None


@cases(
    "params, expected",
    case("no workload", {"AIWorkloadConfigName": "w"}, "WorkloadSpec.Inline is required"),
    case("no YAML", config_with("{"), "Inline: it is not valid YAML or JSON"),
    case(
        "another tool",
        config_with('{"benchmark": {"type": "genai-perf"}, "parameters": {}}'),
        "benchmark.type is 'genai-perf'; it must be \"aiperf\"",
    ),
    case(
        "a parameter without effect",
        config_with(json.dumps({**SPEC, "parameters": {"tokenizer": "gpt2"}})),
        "parameters.tokenizer is not supported",
    ),
)
def test_a_configuration_that_is_refused(
    api: Api, params: Mapping[str, Any], expected: str
) -> None:
    given = {**params, "AIWorkloadConfigName": "w"}
    assert expected in api.refusal("CreateAIWorkloadConfig", **given)
    assert len(api.state.ai_workload_configs.list()) == 1


def test_a_configuration_has_a_name_of_its_account(api: Api) -> None:
    given = {**CONFIG, "AIWorkloadConfigName": "short-1"}
    assert refusal_code(api, "CreateAIWorkloadConfig", **given) == "ResourceInUse"
    api.call_as(Scope("210987654321", "us-west-2"), "CreateAIWorkloadConfig", **CONFIG)


def test_a_new_job_is_described_with_its_request(api: Api) -> None:
    tags = [{"Key": "team", "Value": "a"}]
    arn = f"{ARN}ai-benchmark-job/job-1"
    network = {"VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["s-1"]}}
    given = {**JOB, "Tags": tags, "NetworkConfig": network}
    assert api.call("CreateAIBenchmarkJob", **given) == {"AIBenchmarkJobArn": arn}
    group = "arn:aws:logs:us-west-2:123456789012:log-group:/aws/sagemaker/AIBenchmarkJobs"
    logs = [{"LogGroupArn": group, "LogStreamName": "Job-1/execution"}]
    assert describe(api) == {
        **given,
        "AIBenchmarkJobArn": arn,
        "AIBenchmarkJobStatus": "InProgress",
        "CreationTime": api.clock.now(),
        "OutputConfig": {"S3OutputLocation": "s3://out/results", "CloudWatchLogs": logs},
    }
    job = stored(api)
    assert job.results_uri == "s3://out/results/Job-1/results.json"
    assert job.workload == AiWorkload(
        prompt_tokens_mean=550.0, output_tokens_mean=150.0, concurrency=4, request_count=40
    )


def test_the_times_and_the_reason_of_a_job_are_described(api: Api) -> None:
    api.call("CreateAIBenchmarkJob", **JOB)
    created_at = api.clock.now()
    jobs = AiBenchmarkJobs(api.state, api.clock)
    api.clock.advance(2.0)
    jobs.loop.one_pass()
    assert describe(api)["StartTime"] == created_at + 2.0
    api.clock.advance(3.0)
    api.call("DeleteEndpoint", EndpointName="e")
    jobs.loop.one_pass()
    found = describe(api)
    assert found["AIBenchmarkJobStatus"] == "Failed"
    assert found["EndTime"] == created_at + 5.0
    assert found["FailureReason"] == 'Endpoint "e" was deleted before the benchmark ended.'


@cases(
    "target, expected",
    case("the ARN of an endpoint", job_with(identifier=f"{ARN}endpoint/e"), ("e", ())),
    case("a component", job_with("base", identifier="shared"), ("shared", ("base",))),
    case(
        "the ARN of a component",
        job_with(f"{ARN}inference-component/base", identifier="shared"),
        ("shared", ("base",)),
    ),
    case(
        "the ARN of a configuration, whose name has capitals",
        job_with(AIWorkloadConfigIdentifier=f"{ARN}ai-workload-config/short-1"),
        ("e", ()),
    ),
)
def test_a_target(
    api: Api, target: Mapping[str, Any], expected: tuple[str, tuple[str, ...]]
) -> None:
    api.call("CreateAIBenchmarkJob", **target)
    job = stored(api)
    assert (job.endpoint_name, job.component_names) == expected
    assert job.workload_name == "Short-1"


@cases(
    "params, expected",
    case("an unknown endpoint", job_with(identifier="nope"), 'Could not find endpoint "'),
    case(
        "an endpoint of another account",
        job_with(identifier="arn:aws:sagemaker:us-west-2:210987654321:endpoint/e"),
        'Could not find endpoint "',
    ),
    case("no component", job_with(identifier="shared"), "InferenceComponents has 0 entries"),
    case(
        "an unknown component", job_with("no", identifier="shared"), "Could not find inference co"
    ),
    case("a component elsewhere", job_with("base"), "has no inference components"),
    case(
        "too many components",
        job_with(*["base"] * 101, identifier="shared"),
        "so give from 1 to 100",
    ),
    case(
        "a role that nobody made",
        {**JOB, "RoleArn": "arn:aws:iam::123456789012:role/other"},
        "Could not assume role",
    ),
    case(
        "an output elsewhere",
        {**JOB, "OutputConfig": {"S3OutputLocation": "https://example.com/out"}},
        "Give it as s3://bucket/key",
    ),
)
def test_a_job_that_is_refused(api: Api, params: Mapping[str, Any], expected: str) -> None:
    assert expected in api.refusal("CreateAIBenchmarkJob", **params)
    assert api.state.ai_benchmark_jobs.list() == []


def test_a_job_needs_a_configuration_and_a_target_in_service(api: Api) -> None:
    unknown = {**JOB, "AIWorkloadConfigIdentifier": "nope"}
    assert refusal_code(api, "CreateAIBenchmarkJob", **unknown) == "ResourceNotFound"
    api.change_component("base", status=ComponentStatus.CREATING)
    refused = api.refusal("CreateAIBenchmarkJob", **job_with("base", identifier="shared"))
    assert "is Creating, and must be InService" in refused
    api.change_endpoint("e", status=EndpointStatus.UPDATING)
    assert "is Updating, and must be" in api.refusal("CreateAIBenchmarkJob", **JOB)


def test_a_pipeline_is_refused(api: Api) -> None:
    container = {"Image": api.make.image, "ModelDataUrl": api.make.archive}
    containers = [{**container, "ContainerHostname": it} for it in ("first", "second")]
    api.call("CreateModel", ModelName="steps", ExecutionRoleArn=ROLE, Containers=containers)
    api.make.endpoint("pipe", {"ModelName": "steps"})
    api.change_endpoint("pipe", status=EndpointStatus.IN_SERVICE)
    refused = api.refusal("CreateAIBenchmarkJob", **job_with(identifier="pipe"))
    assert "has a pipeline of containers" in refused


@cases(
    "parameters, longest_s",
    case("a load", {"benchmark_duration": 60}, 960.0),
    case("a warm-up and a load", {"benchmark_duration": 60, "warmup_request_count": 1}, 1_020.0),
)
def test_a_job_has_a_deadline(api: Api, parameters: Mapping[str, Any], longest_s: float) -> None:
    spec = {**SPEC, "parameters": {**SPEC["parameters"], **parameters}}
    given = {**config_with(json.dumps(spec)), "AIWorkloadConfigName": "w"}
    api.call("CreateAIWorkloadConfig", **given)
    api.call("CreateAIBenchmarkJob", **job_with(AIWorkloadConfigIdentifier="w"))
    assert stored(api).deadline_at == api.clock.now() + longest_s


def test_a_job_is_stopped_and_deleted(api: Api) -> None:
    arn = {"AIBenchmarkJobArn": f"{ARN}ai-benchmark-job/job-1"}
    name = {"AIBenchmarkJobName": "Job-1"}
    api.call("CreateAIBenchmarkJob", **JOB)
    assert refusal_code(api, "CreateAIBenchmarkJob", **JOB) == "ResourceInUse"
    assert "is in status InProgress" in api.refusal("DeleteAIBenchmarkJob", **name)
    in_use = refusal_code(api, "DeleteAIWorkloadConfig", AIWorkloadConfigName="Short-1")
    assert in_use == "ResourceInUse"
    for _ in range(2):
        assert api.call("StopAIBenchmarkJob", **name) == arn
    assert stored(api).status is AiBenchmarkStatus.STOPPING
    AiBenchmarkJobs(api.state, api.clock).loop.one_pass()
    assert describe(api)["AIBenchmarkJobStatus"] == "Stopped"
    assert "is in status Stopped" in api.refusal("StopAIBenchmarkJob", **name)
    api.call("DeleteAIWorkloadConfig", AIWorkloadConfigName="Short-1")
    assert api.call("DeleteAIBenchmarkJob", **name) == arn
    for operation in ("Describe", "Stop", "Delete"):
        assert refusal_code(api, f"{operation}AIBenchmarkJob", **name) == "ResourceNotFound"


def test_jobs_are_listed_by_their_status_in_pages(api: Api) -> None:
    for number in range(3):
        api.call("CreateAIBenchmarkJob", **{**JOB, "AIBenchmarkJobName": f"job-{number}"})
        api.clock.advance(1.0)
    found = api.state.ai_benchmark_jobs.get(api.scope, "job-1")
    assert found is not None
    over = replace(found.value, status=AiBenchmarkStatus.COMPLETED, ended_at=api.clock.now())
    api.state.ai_benchmark_jobs.put(api.scope, "job-1", over, expect=found.version)
    (done,) = api.call("ListAIBenchmarkJobs", StatusEquals="Completed")["AIBenchmarkJobs"]
    assert done == {
        "AIBenchmarkJobName": "job-1",
        "AIBenchmarkJobArn": f"{ARN}ai-benchmark-job/job-1",
        "AIBenchmarkJobStatus": "Completed",
        "CreationTime": over.created_at,
        "EndTime": over.ended_at,
        "AIWorkloadConfigName": "Short-1",
    }
    first = api.call("ListAIBenchmarkJobs", MaxResults=2)
    rest = api.call("ListAIBenchmarkJobs", MaxResults=2, NextToken=first["NextToken"])
    shown = [*first["AIBenchmarkJobs"], *rest["AIBenchmarkJobs"]]
    assert [it["AIBenchmarkJobName"] for it in shown] == ["job-2", "job-1", "job-0"]
    assert "NextToken" not in rest
