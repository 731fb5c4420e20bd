"""Targets of each kind, late and lost ones, and graphs where models can be, through boto3."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.integration.batch_rig import BASE, OUTSIDE, create_adapter, create_llm
from tests.integration.batch_rig import packed as packed_folder
from tests.integration.drill import ENDPOINT, NO_RETRIES, create_endpoint, wait_ready
from tests.integration.lmi_rig import byte_model
from tests.integration.platform import Platform, until
from tests.integration.served_models import ROLE, packed

IMAGE = "hostelry/graph:1"
JSON = "application/json"
ADD = "output: a\nsteps: {a: {map: '{sum: sum(input.numbers)}'}}"  # a model without a target
WAITER = {"Delay": 1, "MaxAttempts": 120}
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]


def calls(**target: str) -> str:
    """A graph of one call."""
    return f"output: a\nsteps: {{a: {{call: {json.dumps(target)}}}}}"


@dataclass(frozen=True)
class GraphTargets:
    """A platform with an endpoint of components, and graphs on it."""

    platform: Platform

    def upload(self, name: str, document: str) -> str:
        """The archive of a graph."""
        archive = packed(**{"graph.yaml": document.encode()})
        s3 = self.platform.boto3("s3")
        s3.put_object(Bucket="models", Key=f"{name}.tar.gz", Body=archive)
        return f"s3://models/{name}.tar.gz"

    def specification(self, name: str, document: str) -> dict[str, Any]:
        """Create a graph as an inference component. It has 60 s to start."""
        return {
            "Container": {"Image": IMAGE, "ArtifactUrl": self.upload(name, document)},
            "StartupParameters": {"ContainerStartupHealthCheckTimeoutInSeconds": 60},
            "ComputeResourceRequirements": {
                "NumberOfCpuCoresRequired": 0.25, "MinMemoryRequiredInMb": 256,
            },
        }  # fmt: skip

    def begin(self, name: str, document: str) -> None:
        """Create the component of a graph."""
        self.platform.boto3("sagemaker").create_inference_component(
            InferenceComponentName=name,
            EndpointName=ENDPOINT,
            VariantName="AllTraffic",
            Specification=self.specification(name, document),
            RuntimeConfig={"CopyCount": 1},
        )

    def settled(self, name: str) -> dict[str, Any]:
        """The component once it is InService or Failed."""

        def found() -> dict[str, Any] | None:
            it: dict[str, Any] = self.platform.looker().describe_inference_component(
                InferenceComponentName=name
            )
            return it if it["InferenceComponentStatus"] in ("InService", "Failed") else None

        it: dict[str, Any] = until(found, f"{name} is InService or Failed", 150)
        return it

    def create(self, name: str, document: str) -> None:
        """The component of a graph, in service."""
        self.begin(name, document)
        found = self.settled(name)
        assert found["InferenceComponentStatus"] == "InService", found

    def create_model(self, name: str, document: str) -> None:
        """A graph as a model."""
        container = {"Image": IMAGE, "ModelDataUrl": self.upload(name, document)}
        self.platform.boto3("sagemaker").create_model(
            ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container
        )

    def create_endpoint(self, name: str, variant: dict[str, Any], **config: Any) -> None:
        """An endpoint of the model of that name, in service."""
        sagemaker = self.platform.boto3("sagemaker")
        sagemaker.create_endpoint_config(
            EndpointConfigName=name,
            ProductionVariants=[{"VariantName": "v", "ModelName": name, **variant}],
            **config,
        )
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=name, WaiterConfig=WAITER)

    def invoke(self, endpoint: str, request: Any, component: str | None = None) -> Any:
        """The answer of an endpoint or a component."""
        named = {"InferenceComponentName": component} if component else {}
        answer = self.platform.boto3("sagemaker-runtime", retries=NO_RETRIES).invoke_endpoint(
            EndpointName=endpoint, ContentType=JSON, Body=json.dumps(request), **named
        )
        return json.loads(answer["Body"].read())

    def refusal(self, endpoint: str, component: str | None = None) -> dict[str, Any]:
        """The error that a call ends with."""
        with pytest.raises(ClientError) as caught:
            self.invoke(endpoint, {"numbers": [1]}, component)
        return dict(caught.value.response)

    def copy(self, component: str) -> dict[str, Any]:
        """The component's copy, as `hostelry status` has it."""
        state = json.loads(self.platform.cli("status", "--json").stdout)["state"]
        copies = (copy for endpoint in state["endpoints"] for copy in endpoint["copies"])
        return next((it for it in copies if it["component"] == component), {})

    def object_at(self, uri: str) -> bytes | None:
        """The object at a URI, once it exists."""
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        s3 = self.platform.boto3("s3")
        found = s3.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", ())
        if key not in [it["Key"] for it in found]:
            return None
        body: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphTargets]:
    with Platform(tmp_path_factory.mktemp("home") / "home") as platform:
        platform.boto3("s3").create_bucket(Bucket="models")
        create_endpoint(platform)
        graphs = GraphTargets(platform)
        # It calls itself, so it never starts. Its minute passes while other tests run.
        graphs.begin("narcissus", calls(endpoint=ENDPOINT, component="narcissus"))
        graphs.create("add", ADD)
        yield graphs


def test_a_copy_waits_for_its_targets_and_serves_on_when_one_goes(graphs: GraphTargets) -> None:
    graphs.begin("early", calls(endpoint=ENDPOINT, component="late"))
    missing = (
        f"step a: component late of endpoint {ENDPOINT} answered 400: Inference Component late"
    )
    until(lambda: missing in str(graphs.copy("early").get("reason")), "its reason names the target")
    graphs.create("late", ADD)
    assert graphs.settled("early")["InferenceComponentStatus"] == "InService"
    assert graphs.invoke(ENDPOINT, {"numbers": [1, 2]}, "early") == {"sum": 3}

    sagemaker = graphs.platform.boto3("sagemaker")
    sagemaker.delete_inference_component(InferenceComponentName="late")
    until(lambda: missing in str(graphs.refusal(ENDPOINT, "early")), "a call names the target", 60)
    shown = graphs.platform.cli("explain", "--graph", ENDPOINT, "early").stdout
    assert f"warning: {missing}" in shown, shown
    killed = graphs.copy("early")["pid"]
    os.kill(killed, signal.SIGKILL)

    def is_back() -> bool:
        copy = graphs.copy("early")
        return copy["pid"] not in (0, None, killed) and copy["phase"] == "ready"

    until(is_back, "a copy that was ready is ready again", 60)


@pytest.mark.thorough
def test_a_serverless_graph_is_called_and_a_loop_through_it_refused(
    graphs: GraphTargets,
) -> None:
    graphs.create("first", ADD)
    graphs.create_model("less", calls(endpoint=ENDPOINT, component="first"))
    serverless = {"MemorySizeInMB": 1024, "MaxConcurrency": 2}
    graphs.create_endpoint("less", {"ServerlessConfig": serverless})
    assert graphs.invoke("less", {"numbers": [1, 2]}) == {"sum": 3}, "a graph that is serverless"
    graphs.create("upon", calls(endpoint="less"))
    assert graphs.invoke(ENDPOINT, {"numbers": [3]}, "upon") == {"sum": 3}, "a serverless target"

    sagemaker = graphs.platform.boto3("sagemaker")
    sagemaker.update_inference_component(
        InferenceComponentName="first",
        Specification=graphs.specification("first-again", calls(endpoint="less")),
    )

    def loops() -> bool:
        try:
            graphs.invoke(ENDPOINT, {"numbers": [1]}, "first")
        except ClientError as error:
            return "the graph calls itself" in str(error)
        return False

    until(loops, "the graph that calls itself through another is refused", 90)
    found = graphs.refusal(ENDPOINT, "first")
    assert found["OriginalStatusCode"] == 508, found
    assert f"less -> {ENDPOINT}/first -> less" in found["Error"]["Message"], found


def test_a_graph_is_the_model_of_a_transform_job_and_of_an_asynchronous_endpoint(
    graphs: GraphTargets,
) -> None:
    sagemaker, s3 = graphs.platform.boto3("sagemaker"), graphs.platform.boto3("s3")
    s3.create_bucket(Bucket="jobs")
    s3.put_object(Bucket="jobs", Key="in/rows", Body=b'{"numbers": [4, 5]}')
    graphs.create_model("many", calls(endpoint=ENDPOINT, component="add"))
    data = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://jobs/in/"}}
    sagemaker.create_transform_job(
        TransformJobName="sums",
        ModelName="many",
        TransformInput={"DataSource": data, "ContentType": JSON},
        TransformOutput={"S3OutputPath": "s3://jobs/batch", "Accept": JSON},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )
    graphs.create_endpoint(
        "many",
        {"InstanceType": "ml.m5.large", "InitialInstanceCount": 1},
        AsyncInferenceConfig={"OutputConfig": {"S3OutputPath": "s3://jobs/out"}},
    )
    asked = graphs.platform.boto3("sagemaker-runtime").invoke_endpoint_async(
        EndpointName="many", InputLocation="s3://jobs/in/rows", ContentType=JSON
    )
    for uri in (asked["OutputLocation"], "s3://jobs/batch/rows.out"):
        found = until(partial(graphs.object_at, uri), uri, 90)
        assert json.loads(found) == {"sum": 9}
    graphs.begin("queued", calls(endpoint="many"))
    until(
        lambda: "takes InvokeEndpointAsync" in str(graphs.copy("queued").get("reason")),
        "an asynchronous endpoint is no target",
    )
    sagemaker.delete_inference_component(InferenceComponentName="queued")


def test_adapters_are_targets_by_their_components(graphs: GraphTargets, tmp_path: Path) -> None:
    model, s3 = byte_model(tmp_path), graphs.platform.boto3("s3")
    for name, folder in ((BASE, model), (OUTSIDE, tmp_path / "outside")):
        s3.put_object(Bucket="models", Key=f"{name}.tar.gz", Body=packed_folder(folder))
    create_llm(graphs.platform, BASE, {"OPTION_ENABLE_LORA": "true", "OPTION_DTYPE": "fp32"})
    wait_ready(graphs.platform, BASE, 1, 120)
    create_adapter(graphs.platform, OUTSIDE)
    graphs.create(
        "duet",
        "output: answer\nsteps:\n  answer: {gather: {of: both, by: stack}}\n"
        "  both: {scatter: [base, adapter]}\n"
        f"  base: {{call: {{endpoint: {ENDPOINT}, component: {BASE}}}}}\n"
        f"  adapter: {{call: {{endpoint: {ENDPOINT}, component: {OUTSIDE}}}}}\n",
    )
    asked = {"inputs": "to be", "parameters": {"max_new_tokens": 12, "do_sample": False}}
    expected = [graphs.invoke(ENDPOINT, asked, name) for name in (BASE, OUTSIDE)]
    assert expected[0] != expected[1], "the adapter changes the answer"
    assert graphs.invoke(ENDPOINT, asked, "duet") == expected


@pytest.mark.thorough
def test_a_graph_that_only_calls_itself_fails_with_its_step(graphs: GraphTargets) -> None:
    found = graphs.settled("narcissus")
    assert found["InferenceComponentStatus"] == "Failed"
    assert "step a: component narcissus" in found["FailureReason"], found["FailureReason"]
