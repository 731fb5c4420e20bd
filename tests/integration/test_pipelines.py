"""Serial pipelines and direct multi-container endpoints on a real platform, through boto3."""

import base64
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.cases import case, cases
from tests.integration.capture_rig import capture_of
from tests.integration.container_models import (
    STEP_IMAGE,
    begin,
    copies,
    create_config,
    create_model,
    in_service,
    step,
)
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.guardrail_rig import Endpoint, Traffic, canary, linear, measured
from tests.integration.multi_model_rig import archive
from tests.integration.platform import Platform, until

STEPS = ("one", "two", "three")
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("home") / "home"
    home.mkdir()
    (home / "images.toml").write_text(STEP_IMAGE + ECHO_IMAGE)
    flags = ("--max-body-mb", "1", "--invoke-timeout-s", "8", "--pace", "20")
    with Platform(home, *flags) as running:
        running.boto3("s3").create_bucket(Bucket="seen")
        capture = capture_of("Input", "Output")
        begin(running, "chain", [step(it) for it in STEPS], DataCaptureConfig=capture)
        in_service(running, "chain")
        yield running


def invoke(platform: Platform, name: str, body: Any, **given: Any) -> Any:
    client = platform.boto3("sagemaker-runtime", retries={"total_max_attempts": 1})
    asked = {"ContentType": "application/json", "Body": json.dumps(body), **given}
    return client.invoke_endpoint(EndpointName=name, **asked)


def refused(platform: Platform, name: str, body: Any, **given: Any) -> dict[str, Any]:
    with pytest.raises(ClientError) as caught:
        invoke(platform, name, body, **given)
    found: dict[str, Any] = caught.value.response
    return found


def answers(platform: Platform, name: str) -> bool:
    try:
        return bool(invoke(platform, name, {}))
    except ClientError:
        return False


def test_each_container_gets_the_answer_of_the_one_before(platform: Platform) -> None:
    answer = invoke(platform, "chain", {}, Accept="text/csv", CustomAttributes="mine")
    trail = json.loads(answer["Body"].read())["trail"]
    api = {"Accept": "text/csv", "X-Amzn-SageMaker-Forwarded-Api": "InvokeEndpoint"}
    assert trail == [
        {
            "name": "one",
            "Content-Type": "application/json",
            "X-Amzn-SageMaker-Custom-Attributes": "mine",
            **api,
        },
        {"name": "two", "Content-Type": "application/x-one", **api},
        {"name": "three", "Content-Type": "application/x-two", **api},
    ]
    assert answer["ContentType"] == "application/x-three"
    assert answer["CustomAttributes"] == "from-three"


@cases(
    "fault, status, words",
    case("a client error", "status 418", 418, "two does not want this"),
    case("a server error", "status 503", 503, "two does not want this"),
    case("an answer that breaks off", "cut", 0, "closed the connection"),
    case("a body above the limit", "large 1100000", 0, "limit of 1048576 bytes"),
)
def test_a_fault_in_the_middle_names_the_container(
    platform: Platform, fault: str, status: int, words: str
) -> None:
    error = refused(platform, "chain", {"faults": {"two": fault}})
    assert error["Error"]["Code"] == "ModelError"
    assert error["OriginalStatusCode"] == status
    assert "container-2" in error["Error"]["Message"]
    assert words in error["OriginalMessage"]
    assert error["LogStreamArn"].endswith("/container-2")


def test_the_time_limit_is_that_of_all_containers_together(platform: Platform) -> None:
    error = refused(platform, "chain", {"faults": {"one": "slow 5", "two": "slow 5"}})
    assert (error["Error"]["Code"], error["OriginalStatusCode"]) == ("ModelError", 0)
    late = "timed out while waiting for a response from container container-2"
    assert late in error["OriginalMessage"]


def test_the_clients_request_and_the_last_answer_are_captured(platform: Platform) -> None:
    invoke(platform, "chain", {}, InferenceId="kept", CustomAttributes="mine")
    s3 = platform.boto3("s3")

    def record() -> dict[str, Any] | None:
        for found in s3.list_objects_v2(Bucket="seen").get("Contents", ()):
            text = s3.get_object(Bucket="seen", Key=found["Key"])["Body"].read().decode()
            for line in map(json.loads, text.splitlines()):
                if line["eventMetadata"].get("inferenceId") == "kept":
                    found_line: dict[str, Any] = line
                    return found_line
        return None

    captured = until(record, "the captured request", 60)["captureData"]
    sides = (captured["endpointInput"], captured["endpointOutput"])
    kinds = [it["observedContentType"] for it in sides]
    assert kinds == ["application/json", "application/x-three"]
    assert sides[0]["data"] == "{}"
    answer = json.loads(base64.b64decode(sides[1]["data"]))
    assert [it["name"] for it in answer["trail"]] == list(STEPS)


def test_containers_share_the_memory_of_their_instance_and_no_port(platform: Platform) -> None:
    parts, ports = set(), set()
    for copy in copies(platform, "chain").values():
        text = Path(f"/proc/{copy['pid']}/environ").read_text()
        variables = dict(it.split("=", 1) for it in text.split("\0") if it)
        parts.add(int(variables["HOSTELRY_MEMORY_BYTES"]))
        first, last = map(int, variables["SAGEMAKER_SAFE_PORT_RANGE"].split("-"))
        ports |= {int(variables["SAGEMAKER_BIND_TO_PORT"]), *range(first, last + 1)}
    assert parts == {8 * 2**30 // 3}
    assert len(ports) == 3 * (1 + 16)


def test_requests_in_a_container_that_is_killed_name_it(platform: Platform) -> None:
    before = copies(platform, "chain")
    logs, group = platform.boto3("logs"), "/aws/sagemaker/Endpoints/chain"

    def there() -> bool:
        with suppress(logs.exceptions.ResourceNotFoundException):  # before the first line
            found = logs.filter_log_events(logGroupName=group, filterPattern="doomed")["events"]
            return [it["logStreamName"].rpartition("/")[2] for it in found].count(
                "container-3"
            ) == 4
        return False

    with ThreadPoolExecutor(4) as clients:
        body = {"mark": "doomed", "faults": {"three": "hang"}}
        asked = [clients.submit(refused, platform, "chain", body) for _ in range(4)]
        until(there, "four requests are in the last container", 7)
        os.kill(before["container-3"]["pid"], signal.SIGKILL)
        errors = [it.result() for it in asked]
    assert {it["Error"]["Code"] for it in errors} == {"ModelError"}
    assert {it["OriginalStatusCode"] for it in errors} == {0}
    assert all("from container-3 with message" in it["Error"]["Message"] for it in errors)
    assert all(it["LogStreamArn"].endswith("/container-3") for it in errors)
    assert all("closed the connection" in it["OriginalMessage"] for it in errors)
    until(lambda: copies(platform, "chain")["container-3"]["phase"] == "ready", "it serves again")
    now = copies(platform, "chain")
    assert now["container-3"]["restarts"] == before["container-3"]["restarts"] + 1
    for name in ("container-1", "container-2"):
        assert now[name]["pid"] == before[name]["pid"]
    until(lambda: answers(platform, "chain"), "the pipeline answers")


@cases(
    "ill, words",
    case("it does not start", {"Image": "echo:1", "Environment": {"ECHO_MODE": "exit"}},
        "ensure the model container container-2 for variant AllTraffic starts"),
    case("no archive", step("two", ModelDataUrl="s3://seen/none.tar.gz"),
        "model data for variant AllTraffic container-2 from URL"),
)  # fmt: skip
def test_a_container_that_cannot_start_fails_the_endpoint_by_name(
    platform: Platform, ill: dict[str, Any], words: str
) -> None:
    name = f"ill-{ill['Image'][:4]}"
    begin(platform, name, [step("one"), ill, step("three")])

    def failed() -> str | None:
        found = platform.looker().describe_endpoint(EndpointName=name)
        assert found["EndpointStatus"] in ("Creating", "Failed")
        reason: str | None = found.get("FailureReason")
        return reason

    assert words in until(failed, "the endpoint is Failed", 60)


@pytest.mark.thorough
def test_updates_to_a_pipeline_and_back_and_scaling_fail_no_request(platform: Platform) -> None:
    endpoint = Endpoint(platform, "moving", 2)
    endpoint.configure("v2", num_containers=3)
    endpoint.configure("v3")
    one = {"Type": "INSTANCE_COUNT", "Value": 1}
    at_once = {"TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}}
    steps: list[tuple[str, dict[str, Any]]] = [
        ("v2", {"BlueGreenUpdatePolicy": at_once}),
        ("v3", {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": canary(50, 3)}}),
        ("v2", {"RollingUpdatePolicy": {"MaximumBatchSize": one, "WaitIntervalInSeconds": 2}}),
        ("v3", {"RollingUpdatePolicy": {"MaximumBatchSize": one, "WaitIntervalInSeconds": 2}}),
        ("v2", {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": linear(1, 3)}}),
    ]
    with Traffic(platform, endpoint.name) as traffic:
        for version, policy in steps:
            endpoint.begin(version, policy, None)
            endpoint.in_service()
            assert (set(measured(traffic, 2.0)), traffic.failed()) == ({version}, [])
        scaling = platform.boto3("application-autoscaling")
        for count in (3, 1):
            scaling.register_scalable_target(
                ServiceNamespace="sagemaker",
                ResourceId="endpoint/moving/variant/AllTraffic",
                ScalableDimension="sagemaker:variant:DesiredInstanceCount",
                MinCapacity=count,
                MaxCapacity=count,
            )
            has_settled(platform, count)
        assert traffic.failed() == []
        print(f"{traffic.seen().total()} requests, none failed")


def has_settled(platform: Platform, num_instances: int) -> None:
    """Wait until `moving` has `count` instances, with three containers each."""
    wanted = [3] * num_instances
    until(lambda: ready_on(platform, "moving") == wanted, f"{num_instances} instances", 60)


def ready_on(platform: Platform, name: str) -> list[int]:
    """How many containers are ready on each instance of an endpoint."""
    state = json.loads(platform.cli("status", "--json").stdout)["state"]
    (endpoint,) = [it for it in state["endpoints"] if it["name"] == name]
    ready = [it["instance"] for it in endpoint["copies"] if it["phase"] == "ready"]
    return list(Counter(ready).values())


def traced(platform: Platform, answer: Any) -> dict[str, Any]:
    request_id = answer["ResponseMetadata"]["RequestId"]
    found: dict[str, Any] = json.loads(platform.cli("trace", request_id, "--json").stdout)
    return found


def test_a_trace_has_each_hop_and_the_log_of_that_moment(platform: Platform) -> None:
    answer = invoke(platform, "chain", {"mark": "of the traced call"})

    def logged() -> bool:
        logs = traced(platform, answer)["logs"]
        return sum("of the traced call" in str(lines) for lines in logs.values()) == 3

    until(logged, "what the containers logged")
    call = traced(platform, answer)["call"]
    arrival, attempt, passing = call["spans"]
    names = [f"container-{number}" for number in (1, 2, 3)]
    hops = attempt["spans"]
    assert [it["name"] for it in hops] == names
    ids = copies(platform, "chain")
    assert [it["copy"] for it in hops] == [ids[name]["id"] for name in names]
    num_bytes = [call["bytes_in"], *(it["bytes_out"] for it in hops)]
    assert [it["bytes_in"] for it in hops] == num_bytes[:-1]
    assert num_bytes[-1] == call["bytes_out"] == len(answer["Body"].read())
    assert all(it["ms"] > 0 for it in hops)
    assert sum(it["ms"] + it["wait_ms"] for it in hops) <= attempt["ms"] + 0.01
    assert arrival["ms"] + attempt["ms"] + passing["ms"] <= call["ms"] + 0.01


def test_a_trace_names_the_container_that_failed(platform: Platform) -> None:
    error = refused(platform, "chain", {"faults": {"two": "status 418"}})
    call = traced(platform, error)["call"]
    (attempt,) = [it for it in call["spans"] if it["name"] == "attempt"]
    hops = [(it["name"], it.get("outcome")) for it in attempt["spans"]]
    assert hops == [("container-1", None), ("container-2", "failed")]
    request_id = error["ResponseMetadata"]["RequestId"]
    shown = platform.cli("trace", request_id).stdout
    (row,) = [it for it in shown.splitlines() if it.startswith("  container-2 (container)")]
    assert row.endswith("│ failed")
    assert "failed: 424 ModelError: Received client error (418) from container-2" in shown
    assert request_id in platform.cli("trace", "--failed", "chain").stdout


def test_the_last_answer_streams(platform: Platform) -> None:
    client = platform.boto3("sagemaker-runtime")
    answer = client.invoke_endpoint_with_response_stream(
        EndpointName="chain", Body=json.dumps({"faults": {"one": "large 1", "three": "stream"}})
    )
    parts = [it["PayloadPart"]["Bytes"] for it in answer["Body"]]
    assert parts[:2] == [b"first", b"second"]
    apis = [it["X-Amzn-SageMaker-Forwarded-Api"] for it in json.loads(parts[2])["trail"]]
    assert apis == ["InvokeEndpoint", "InvokeEndpoint", "InvokeEndpointWithResponseStream"]


@pytest.fixture(scope="module")
def direct(platform: Platform) -> str:
    hosts = [step(name, ContainerHostname=name) for name in ("left", "right")]
    begin(platform, "direct", hosts, mode="Direct")
    in_service(platform, "direct")
    return "direct"


def test_a_request_for_a_container_goes_there_alone(platform: Platform, direct: str) -> None:
    for name in ("left", "right"):
        answer = invoke(platform, direct, {}, TargetContainerHostname=name)
        (only,) = json.loads(answer["Body"].read())["trail"]
        assert only["name"] == name


@cases(
    "name, given, words",
    case("none named", "direct", {}, "name the container to invoke"),
    case("unknown", "direct", {"TargetContainerHostname": "up"}, "its containers are left, right"),
    case("a pipeline", "chain", {"TargetContainerHostname": "container-1"},
        "is not a direct multi-container endpoint"),
)  # fmt: skip
def test_requests_for_no_container_are_refused(
    platform: Platform, direct: str, name: str, given: dict[str, str], words: str
) -> None:
    error = refused(platform, name, {}, **given)["Error"]
    assert error["Code"] == "ValidationError"
    assert words in error["Message"]


def test_a_container_that_dies_leaves_the_other_in_service(platform: Platform, direct: str) -> None:
    before = copies(platform, direct)
    error = refused(platform, direct, {"faults": {"left": "die"}}, TargetContainerHostname="left")
    assert "from left with message" in error["Error"]["Message"]
    assert error["LogStreamArn"].endswith(f"{before['left']['instance']}/left")
    for _ in range(20):
        assert invoke(platform, direct, {}, TargetContainerHostname="right")
    until(lambda: copies(platform, direct)["left"]["restarts"], "left is started again")
    assert invoke(platform, direct, {}, TargetContainerHostname="left")
    assert copies(platform, direct)["right"]["pid"] == before["right"]["pid"]


def test_metrics_and_logs_are_those_of_each_container(platform: Platform, direct: str) -> None:
    cloudwatch = platform.boto3("cloudwatch")

    def seen(endpoint: str) -> set[tuple[str, str]]:
        listed = cloudwatch.list_metrics(
            Namespace="AWS/SageMaker", Dimensions=[{"Name": "EndpointName", "Value": endpoint}]
        )
        return {
            (dimensions["ContainerName"], metric["MetricName"])
            for metric in listed["Metrics"]
            for dimensions in [{it["Name"]: it["Value"] for it in metric["Dimensions"]}]
            if "ContainerName" in dimensions
        }

    invoke(platform, "chain", {"mark": "logged"})
    wanted = {(f"container-{it}", "ContainerLatency") for it in (1, 2, 3)}
    until(lambda: wanted <= seen("chain"), "metrics of each container")
    more = {"ContainerLatency", "OverheadLatency", "Invocations", "Invocation5XXErrors"}
    until(lambda: {("left", it) for it in more} <= seen(direct), "metrics of a named container")
    logs, group = platform.boto3("logs"), "/aws/sagemaker/Endpoints/chain"

    def streams() -> set[str]:
        found = logs.filter_log_events(logGroupName=group, filterPattern="logged")["events"]
        return {it["logStreamName"].rpartition("/")[2] for it in found}

    until(lambda: streams() == {f"container-{it}" for it in (1, 2, 3)}, "three log streams")
    shown = platform.cli("explain", "--endpoint", "chain").stdout
    assert all(f"container container-{it}" in shown for it in (1, 2, 3))


@pytest.mark.thorough
def test_asynchronous_requests_and_transform_jobs_go_through_all(platform: Platform) -> None:
    s3, sagemaker = platform.boto3("s3"), platform.boto3("sagemaker")
    s3.create_bucket(Bucket="jobs")
    settings = {"OutputConfig": {"S3OutputPath": "s3://jobs/out", "S3FailurePath": "s3://jobs/bad"}}
    create_model(platform, "queued", [step("one"), step("two")])
    create_config(platform, "queued", AsyncInferenceConfig=settings)
    sagemaker.create_endpoint(EndpointName="queued", EndpointConfigName="queued")
    # "late" exceeds the time limit only if both containers share the limit.
    inputs: dict[str, Any] = {
        "good": {},
        "ill": {"two": "status 400"},
        "late": {"one": "slow 2", "two": "slow 2"},
    }
    limit_s = {"good": 60, "ill": 60, "late": 3}
    for key, faults in inputs.items():
        s3.put_object(Bucket="jobs", Key=f"in/{key}", Body=json.dumps({"faults": faults}))
        sagemaker.create_transform_job(
            TransformJobName=key,
            ModelName="queued",
            TransformInput={
                "DataSource": {
                    "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://jobs/in/{key}"}
                },
                "ContentType": "application/json",
            },
            TransformOutput={"S3OutputPath": "s3://jobs/batch", "Accept": "text/csv"},
            TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
            ModelClientConfig={
                "InvocationsTimeoutInSeconds": limit_s[key],
                "InvocationsMaxRetries": 0,
            },
        )
    in_service(platform, "queued")
    runtime = platform.boto3("sagemaker-runtime")
    asked = {
        key: runtime.invoke_endpoint_async(
            EndpointName="queued", InputLocation=f"s3://jobs/in/{key}", Accept="text/csv",
            ContentType="application/json", InvocationTimeoutSeconds=limit_s[key],
        )
        for key in inputs
    }  # fmt: skip

    def object_at(uri: str) -> bytes | None:
        key = uri.removeprefix("s3://jobs/")
        if key not in [it["Key"] for it in s3.list_objects_v2(Bucket="jobs").get("Contents", ())]:
            return None
        body: bytes = s3.get_object(Bucket="jobs", Key=key)["Body"].read()
        return body

    good = until(lambda: object_at(asked["good"]["OutputLocation"]), "the output", 60)
    bad = until(lambda: object_at(asked["ill"]["FailureLocation"]), "the failure", 60)
    assert [it["name"] for it in json.loads(good)["trail"]] == ["one", "two"]
    assert b"client error (400) from container-2" in bad
    late = until(lambda: object_at(asked["late"]["FailureLocation"]), "the late one", 60)
    assert b"timed out while waiting for a response from container container-2" in late

    def ended(name: str) -> dict[str, Any] | None:
        found: dict[str, Any] = sagemaker.describe_transform_job(TransformJobName=name)
        return found if found["TransformJobStatus"] in ("Completed", "Failed") else None

    assert until(lambda: ended("good"), "the job", 90)["TransformJobStatus"] == "Completed"
    batch = object_at("s3://jobs/batch/good.out")
    assert batch is not None
    kinds = [(it["name"], it["Content-Type"], it["Accept"]) for it in json.loads(batch)["trail"]]
    assert kinds == [
        ("one", "application/json", "text/csv"), ("two", "application/x-one", "text/csv"),
    ]  # fmt: skip
    failed = until(lambda: ended("ill"), "the other job", 90)
    assert failed["TransformJobStatus"] == "Failed"
    assert "Container container-2 answered 400" in failed["FailureReason"]
    failed = until(lambda: ended("late"), "the late job", 90)
    assert failed["TransformJobStatus"] == "Failed"
    assert "Container container-2 gave no answer" in failed["FailureReason"]


@pytest.mark.parametrize("at", [0, 1])
def test_a_container_of_many_models_is_a_step(platform: Platform, at: int) -> None:
    s3, name = platform.boto3("s3"), f"many-{at}"
    if "many" not in [it["Name"] for it in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket="many")
    for factor in (3, 5):
        model = archive({"model.json": json.dumps({"factor": factor})})
        s3.put_object(Bucket="many", Key=f"{name}/{factor}.tar.gz", Body=model)
    others = {"Image": "models:1", "Mode": "MultiModel", "ModelDataUrl": f"s3://many/{name}/"}
    containers = [{"Image": "echo:1"}]
    containers.insert(at, others)
    begin(platform, name, containers)
    in_service(platform, name)
    for factor in (3, 5):
        answer = invoke(platform, name, 2, TargetModel=f"{factor}.tar.gz")
        assert json.loads(answer["Body"].read()) == 2 * factor
    error = refused(platform, name, 2, TargetModel="none.tar.gz")["Error"]
    assert error["Code"] == "ValidationError"
    assert "TargetModel" in refused(platform, name, 2)["Error"]["Message"]
