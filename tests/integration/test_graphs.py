"""Graphs through boto3: the examples' scikit-learn models, called by graphs, killed, and drawn."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from botocore.session import Session as Boto
from prometheus_client.parser import text_string_to_metric_families
from tests.cases import case, cases
from tests.integration.platform import Platform, until
from tests.integration.served_models import IMAGE, ROLE, packed, sklearn_runtimes

from hostelry.aws.temporary_keys import Session, TokenSeal
from hostelry.base.clock import SystemClock
from hostelry.base.runtimes import VARIABLE
from hostelry.containers.code.confinement import MIN_LANDLOCK, landlock_version
from hostelry.containers.graph.functions import FunctionError, FunctionProcesses
from hostelry.home.home import load_config, load_credentials

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "graph"
ENDPOINT = "wine"
ROWS = [[14.23, 1.71, 2.43, 15.6, 127.0, 2.8, 3.06, 0.28, 2.29, 5.64, 1.04, 3.92, 1065.0]]
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]


@dataclass(frozen=True)
class Graphs:
    """A platform with the examples' models and graphs, and the output of the example."""

    platform: Platform
    printed: list[dict[str, Any]]

    def create(self, name: str, document: str, **files: bytes) -> dict[str, Any]:
        """The component of a graph, once it is InService or Failed."""
        archive = packed(**{"graph.yaml": document.encode(), **files})
        self.platform.boto3("s3").put_object(
            Bucket="wine-models", Key=f"{name}.tar.gz", Body=archive
        )
        self.platform.boto3("sagemaker").create_inference_component(
            InferenceComponentName=name,
            EndpointName=ENDPOINT,
            VariantName="AllTraffic",
            Specification={
                "Container": {
                    "Image": "hostelry/graph:1",
                    "ArtifactUrl": f"s3://wine-models/{name}.tar.gz",
                },
                "ComputeResourceRequirements": {
                    "NumberOfCpuCoresRequired": 0.25, "MinMemoryRequiredInMb": 256,
                },
            },
            RuntimeConfig={"CopyCount": 1},
        )  # fmt: skip
        looker = self.platform.looker()

        def settled() -> dict[str, Any] | None:
            found: dict[str, Any] = looker.describe_inference_component(InferenceComponentName=name)
            return found if found["InferenceComponentStatus"] in ("InService", "Failed") else None

        found: dict[str, Any] = until(settled, f"{name} is InService or Failed", 90)
        return found

    def invoke(self, component: str, request: Any) -> Any:
        runtime = self.platform.boto3("sagemaker-runtime", retries={"total_max_attempts": 1})
        answer = runtime.invoke_endpoint(
            EndpointName=ENDPOINT,
            InferenceComponentName=component,
            ContentType="application/json",
            Body=json.dumps(request),
        )
        return json.loads(answer["Body"].read())

    def pid(self, component: str) -> int:
        """The process of a component's copy."""
        state = json.loads(self.platform.cli("status", "--json").stdout)["state"]
        copies = (copy for endpoint in state["endpoints"] for copy in endpoint["copies"])
        (found,) = [it for it in copies if it["component"] == component]
        return int(found["pid"] or 0)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graphs]:
    environment = {VARIABLE: str(sklearn_runtimes()), "HOSTELRY_CUSTOM_CODE": "trusted"}
    home = tmp_path_factory.mktemp("home") / "home"
    with Platform(home, environment=environment) as platform:
        done = platform.exec([sys.executable, str(EXAMPLES / "deploy.py")])
        yield Graphs(platform, [json.loads(line) for line in done.stdout.splitlines()])


@pytest.mark.thorough
def test_the_examples_answer(graphs: Graphs) -> None:
    (ensemble, by_field, by_answer, cascade) = graphs.printed
    assert [it["cultivar"] for it in ensemble["ensemble"]] == ["barolo", "barbera"]
    assert by_field["selection"] == graphs.invoke("bayes", ROWS)
    assert by_answer["selection"][0][2] > 0.5
    assert [max(range(3), key=row.__getitem__) for row in cascade["cascade"]] == [0, 2]


def test_the_gateway_has_the_copies_own_metrics(graphs: Graphs) -> None:
    config = load_config(graphs.platform.home)
    key = {"Authorization": f"Bearer {load_credentials(graphs.platform.home).openai_api_key}"}

    def page(query: str, headers: dict[str, str] = key) -> httpx.Response:
        url = f"{config.gateway_url}/metrics/copies{query}"
        return httpx.get(url, headers=headers, timeout=20, trust_env=False)

    found = page(f"?endpoint={ENDPOINT}")
    assert found.status_code == 200, found.text
    families = {it.name: it for it in text_string_to_metric_families(found.text)}
    steps = families["hostelry_graph_step_seconds"].samples
    assert {it.labels["endpoint"] for it in steps} == {ENDPOINT}
    assert "ensemble" in {it.labels["component"] for it in steps}
    ups = {it.labels["component"]: it.value for it in families["hostelry_copy_metrics_up"].samples}
    assert ups["ensemble"] == ups["forest"] == 1
    requests = families["hostelry_model_requests"].samples
    assert "forest" in {it.labels["component"] for it in requests if it.value > 0}
    assert page("?endpoint=none").status_code == 404
    assert page("", {}).status_code == 401


def test_a_weighted_mean_is_that_of_the_models_own_answers(graphs: Graphs) -> None:
    document = (
        "output: mean\nsteps:\n"
        "  a: {call: {endpoint: wine, component: logistic}}\n"
        "  b: {call: {endpoint: wine, component: forest}}\n"
        "  all: {scatter: [a, b]}\n"
        "  mean: {gather: {of: all, by: weighted_mean, weights: {a: 1, b: 3}}}\n"
    )
    assert graphs.create("mean", document)["InferenceComponentStatus"] == "InService"
    a, b = graphs.invoke("logistic", ROWS)[0], graphs.invoke("forest", ROWS)[0]
    expected = [(x + 3 * y) / 4 for x, y in zip(a, b, strict=True)]
    assert graphs.invoke("mean", ROWS)[0] == pytest.approx(expected, abs=1e-9)


@cases(
    "name, document, files, reason",
    case("a cycle", "cyclic", "output: a\nsteps: {a: {map: b.x}, b: {map: a.x}}", {},
        "step a: it needs itself"),
    case("no target", "no-target", "output: a\nsteps: {a: {call: {component: x}}}", {},
        "step a, field call.endpoint: it is missing"),
    case("code that cannot be loaded", "torn", "output: a\nsteps: {a: {map: {function: 'f:g'}}}",
        {"code/f.py": b"import nothing_of_that_name"}, "f:g: ModuleNotFoundError"),
)  # fmt: skip
def test_a_graph_that_cannot_be_served_fails_with_the_cause(
    graphs: Graphs, name: str, document: str, files: dict[str, bytes], reason: str
) -> None:
    found = graphs.create(name, document, **files)
    assert found["InferenceComponentStatus"] == "Failed"
    assert reason in found["FailureReason"]


def test_a_copys_keys_invoke_and_do_nothing_else(graphs: Graphs) -> None:
    home = graphs.platform.home
    credentials = load_credentials(home)
    session = Session(
        access_key_id="ASIAGRAPH",
        account_id=credentials.account_id,
        expires_at=int(SystemClock().now()) + 600,
        session_name="i-1",
    )
    keys = TokenSeal(credentials.internal_key).issue(session)
    given = {
        "aws_access_key_id": keys.access_key_id,
        "aws_secret_access_key": keys.secret_access_key,
        "aws_session_token": keys.session_token,
        "region_name": credentials.region,
    }
    config = load_config(home)

    def client(service: str, url: str = config.gateway_url) -> Any:
        return Boto().create_client(service, endpoint_url=url, **given)

    order = {"EndpointName": ENDPOINT, "ContentType": "application/json"}
    invoked = client("sagemaker-runtime").invoke_endpoint(
        **order, InferenceComponentName="bayes", Body=json.dumps(ROWS)
    )
    assert len(json.loads(invoked["Body"].read())) == 1
    s3 = client("s3", config.s3_url)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: client("sagemaker").list_models(),
        lambda: client("sts").get_caller_identity(),
        lambda: client("secretsmanager").list_secrets(),
        lambda: client("sagemaker-runtime").invoke_endpoint_async(
            **order, InputLocation="s3://wine-models/mean"
        ),
        lambda: s3.list_objects_v2(Bucket="wine-models"),
        lambda: s3.put_object(Bucket="wine-models", Key="x", Body=b"x"),
    )
    for refused in calls:
        with pytest.raises(ClientError, match="AccessDenied"):
            refused()


def test_a_graph_calls_the_containers_of_its_own_model(graphs: Graphs) -> None:
    document = (
        "output: answer\nsteps:\n  answer: {gather: {of: all, by: stack}}\n"
        "  all: {scatter: [a, b]}\n"
        "  a: {call: {endpoint: direct, container: logistic}}\n"
        "  b: {call: {endpoint: direct, container: bayes}}\n"
    )
    archive = packed(**{"graph.yaml": document.encode()})
    graphs.platform.boto3("s3").put_object(Bucket="wine-models", Key="d.tar.gz", Body=archive)
    images = {"graph": "hostelry/graph", "logistic": IMAGE, "bayes": IMAGE}
    archives = {"graph": "d", "logistic": "logistic", "bayes": "bayes"}
    sagemaker = graphs.platform.boto3("sagemaker")
    sagemaker.create_model(
        ModelName="direct",
        ExecutionRoleArn=ROLE,
        Containers=[
            {
                "ContainerHostname": name,
                "Image": image,
                "ModelDataUrl": f"s3://wine-models/{archives[name]}.tar.gz",
            }
            for name, image in images.items()
        ],
        InferenceExecutionConfig={"Mode": "Direct"},
    )
    variant = {
        "VariantName": "v", "ModelName": "direct", "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }  # fmt: skip
    sagemaker.create_endpoint_config(EndpointConfigName="direct", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="direct", EndpointConfigName="direct")
    waiter = {"Delay": 1, "MaxAttempts": 90}
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="direct", WaiterConfig=waiter)
    answer = graphs.platform.boto3("sagemaker-runtime").invoke_endpoint(
        EndpointName="direct", TargetContainerHostname="graph", ContentType="application/json",
        Body=json.dumps(ROWS),
    )  # fmt: skip
    expected = [graphs.invoke(name, ROWS) for name in ("logistic", "bayes")]
    assert json.loads(answer["Body"].read()) == expected


CURIOUS = """
import socket, time
def tried(port):
    found = []
    for attempt in (lambda: open("/proc/self/environ").read(), lambda: open("/etc/passwd").read(),
                    lambda: open("f.py", "w"), lambda: socket.create_connection(("::1", port))):
        try:
            found.append(str(attempt()))
        except OSError as error:
            found.append(type(error).__name__)
    return found
def hangs(value):
    while True:
        time.sleep(1)
def dies(value):
    import os
    os.abort()
def broken(value):
    return value["x"]
def shapes(value):
    import numpy
    return {"mean": numpy.mean(value, axis=0), "n": numpy.int64(len(value))}
"""


@pytest.mark.skipif(landlock_version() < MIN_LANDLOCK, reason="no Landlock: functions are refused")
async def test_functions_are_confined_and_their_faults_end_one_call(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(CURIOUS)
    names = tuple(f"f:{it}" for it in ("tried", "hangs", "dies", "broken", "shapes"))
    functions = FunctionProcesses(tmp_path, names, dict(os.environ), 1)
    try:
        await functions.start()
        assert await functions.call("f:tried", 9, 10) == ["PermissionError"] * 4
        for name, reason in (
            ("f:hangs", r"did not end within 0.3 s; it was at f.py line \d+ in hangs"),
            ("f:dies", "ended by signal 6 during f:dies"),
            ("f:broken", r"TypeError: .* \(f.py line \d+ in broken\)"),
        ):
            with pytest.raises(FunctionError, match=reason):
                await functions.call(name, 1, 0.3)
        found = await functions.call("f:shapes", [[1, 2], [3, 4]], 10)
        assert found == {"mean": [2, 3], "n": 2}
    finally:
        await functions.close()


def test_a_trace_has_each_step_with_the_call_that_it_made(graphs: Graphs) -> None:
    platform = graphs.platform
    runtime = platform.boto3("sagemaker-runtime")
    answer = runtime.invoke_endpoint(
        EndpointName=ENDPOINT,
        InferenceComponentName="ensemble",
        ContentType="application/json",
        Body=json.dumps({"wines": [dict(zip(FIELDS, ROWS[0], strict=True))]}),
    )
    request_id = answer["ResponseMetadata"]["RequestId"]
    call = json.loads(platform.cli("trace", request_id, "--json").stdout)["call"]
    assert (call["component"], call["calls"]) == ("ensemble", [])
    (attempt,) = [it for it in call["spans"] if it["name"] == "attempt"]
    (scatter,) = [it for it in attempt["spans"] if it["kind"] == "scatter"]
    assert {it["kind"] for it in attempt["spans"]} >= {"map", "scatter"}
    made = {it["call"]["component"]: it for it in scatter["spans"]}
    assert set(made) == {"logistic", "forest"}
    for step in made.values():
        child = step["call"]
        assert (child["parent_id"], child["status"]) == (request_id, 200)
        (inner,) = [it for it in child["spans"] if it["name"] == "attempt"]
        assert inner["ms"] <= step["ms"] <= scatter["ms"] <= attempt["ms"]
        assert child["parent_step"] == step["name"]
        assert step["bytes_in"] == child["bytes_in"]
        assert step["bytes_out"] == child["bytes_out"]
    shown = platform.cli("trace", request_id).stdout
    assert "call of wine/logistic" in shown
    alone = made["forest"]["call"]["request_id"]
    assert f"made by {request_id}" in platform.cli("trace", alone).stdout


@pytest.mark.thorough
def test_a_killed_target_counts_by_its_steps_rule(graphs: Graphs) -> None:
    request = {"wines": [dict(zip(FIELDS, ROWS[0], strict=True))]}
    both = graphs.invoke("ensemble", request)[0]
    alone = round(max(graphs.invoke("forest", ROWS)[0]), 4)
    assert both["probability"] != alone

    def asked_after_a_kill() -> bool:
        os.kill(graphs.pid("logistic"), signal.SIGKILL)
        found = graphs.invoke("ensemble", request)[0]
        assert found["cultivar"] == "barolo"
        return bool(found["probability"] == alone)

    until(asked_after_a_kill, "the forest answers alone", 60)

    def is_back() -> bool:
        return bool(graphs.invoke("ensemble", request)[0] == both)

    until(is_back, "both answer again", 60)


def test_a_killed_graph_has_keys_again(graphs: Graphs) -> None:
    request = {"model": "bayes", "rows": ROWS}
    expected = graphs.invoke("selection", request)
    killed = graphs.pid("selection")
    os.kill(killed, signal.SIGKILL)
    until(lambda: graphs.pid("selection") not in (0, killed), "another process", 60)

    def answers() -> bool:
        try:
            return bool(graphs.invoke("selection", request) == expected)
        except ClientError:
            return False

    until(answers, "it calls its targets", 60)


FIELDS = (
    "alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols", "flavanoids",
    "nonflavanoid_phenols", "proanthocyanins", "color_intensity", "hue", "od280", "proline",
)  # fmt: skip


def test_explain_draws_steps_with_their_times(graphs: Graphs, tmp_path: Path) -> None:
    for _ in range(3):
        graphs.invoke("cascade", {"rows": ROWS})
    file = tmp_path / "cascade.svg"
    shown = graphs.platform.cli(
        "explain", "--graph", ENDPOINT, "cascade", "--svg", str(file)
    ).stdout
    assert "call component logistic of endpoint wine" in shown
    (line,) = [it for it in shown.splitlines() if it.lstrip().startswith("answer")]
    assert "times, p50" in line
    assert file.read_text().startswith("<svg")
    refused = graphs.platform.cli("explain", "--graph", ENDPOINT, "bayes", code=1)
    assert "has no copy that is a graph" in refused.stderr
