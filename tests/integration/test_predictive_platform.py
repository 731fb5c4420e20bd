"""AWS's scikit-learn image through boto3: a real model in a runtime that the CLI installs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.cases import case, cases
from tests.integration.multi_model_rig import MANY, Models
from tests.integration.platform import CLI, Platform, until
from tests.integration.sdk_rig import SHORT_WAITS
from tests.integration.served_models import IMAGE, ROLE, Served, packed, sklearn_runtimes
from tests.integration.virtual_environments import virtual_environment

from hostelry.base.clock import SystemClock
from hostelry.base.runtimes import VARIABLE, runtime_python

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def runtimes() -> Path:
    return sklearn_runtimes()


@pytest.fixture(scope="module")
def served(runtimes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    environment = {VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted"}
    home = tmp_path_factory.mktemp("home") / "home"
    with Platform(home, environment=environment) as platform:
        python = runtime_python(runtimes, "sklearn-1.2")
        yield Served(platform, tmp_path_factory.mktemp("trained"), python)


@cases(
    "archive, environment",
    case("code in the archive", "inside", {}),
    case(
        "code of its own archive in S3",
        "model",
        {
            "SAGEMAKER_PROGRAM": "entry.py",
            "SAGEMAKER_SUBMIT_DIRECTORY": "s3://models/source.tar.gz",
        },
    ),
)
def test_a_model_answers_as_scikit_learn_does(
    served: Served, archive: str, environment: dict[str, str]
) -> None:
    found = served.deployed(archive, archive, **environment)
    assert found["EndpointStatus"] == "InService", found
    answer = json.loads(
        served.invoke(archive, "application/json", json.dumps(served.expected["rows"]).encode())
    )
    assert answer == pytest.approx(served.expected["predicted"], abs=1e-6)


@cases(
    "name, image, reason",
    case("code that fails", "broken", IMAGE, "ValueError: torn (inference.py line 1 in model_fn)"),
    case("no such runtime", "old", IMAGE.replace("1.2-1", "9.9-1"),
        "for sklearn:9.9; of sklearn there are 0.20"),
)  # fmt: skip
def test_a_model_that_cannot_be_served_fails_with_the_cause(
    served: Served, name: str, image: str, reason: str
) -> None:
    found = served.deployed(name, "broken", image)
    assert found["EndpointStatus"] == "Failed"
    assert reason in found["FailureReason"]


def test_code_is_not_run_as_the_platforms_own_user_unasked(runtimes: Path, tmp_path: Path) -> None:
    environment = {VARIABLE: str(runtimes)}
    with Platform(tmp_path / "home", "--copy-user", "none", environment=environment) as platform:
        refused = Served(platform, tmp_path, runtime_python(runtimes, "sklearn-1.2"))
        found = refused.deployed("inside", "inside")
    assert found["EndpointStatus"] == "Failed"
    assert "HOSTELRY_CUSTOM_CODE=trusted" in found["FailureReason"]


def test_copies_of_an_instance_share_an_imported_framework(served: Served) -> None:
    sagemaker, name = served.sagemaker, "shared"
    variant = {
        "VariantName": "AllTraffic", "InstanceType": "ml.m5.2xlarge", "InitialInstanceCount": 1,
    }  # fmt: skip
    sagemaker.create_endpoint_config(
        EndpointConfigName=name, ExecutionRoleArn=ROLE, ProductionVariants=[variant]
    )
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    environments = {
        "first": {},
        "another": {"SAGEMAKER_MODEL_SERVER_WORKERS": "2"},
        "with-a-variable": {"ITS_OWN": "1"},
        "with-threads": {"SAGEMAKER_MODEL_SERVER_WORKERS": "1"},
    }
    for component, environment in environments.items():
        sagemaker.create_inference_component(
            InferenceComponentName=component,
            EndpointName=name,
            VariantName="AllTraffic",
            Specification={
                "Container": {
                    "Image": IMAGE,
                    "ArtifactUrl": "s3://models/inside.tar.gz",
                    "Environment": environment,
                },
                "ComputeResourceRequirements": {
                    "NumberOfCpuCoresRequired": 2, "MinMemoryRequiredInMb": 1024,
                },
            },
            RuntimeConfig={"CopyCount": 1},
        )  # fmt: skip
    looker = served.platform.looker()

    def settled() -> bool:
        found = [
            looker.describe_inference_component(InferenceComponentName=component)
            for component in environments
        ]
        return all(it["InferenceComponentStatus"] == "InService" for it in found)

    until(settled, "all components are InService", 90)
    body = json.dumps(served.expected["rows"]).encode()
    for component in environments:
        answer = served.invoke(name, "application/json", body, InferenceComponentName=component)
        assert json.loads(answer) == pytest.approx(served.expected["predicted"], abs=1e-6)
    assert start_kinds(served.platform, name) == {
        "first": "warm",
        "another": "warm",
        "with-a-variable": "cold",
        "with-threads": "cold",
    }
    for component in environments:
        sagemaker.delete_inference_component(InferenceComponentName=component)


def start_kinds(platform: Platform, endpoint: str) -> dict[str, str]:
    """How each component's copy of an endpoint was started."""
    state = json.loads(platform.cli("status", "--json").stdout)["state"]
    (found,) = [it for it in state["endpoints"] if it["name"] == endpoint]
    return {it["component"]: it["start_kind"] for it in found["copies"]}


ROW = "text/csv"
KEPT_S = 5.5  # a load that has failed answers further requests for 5 s


def factor(number: float) -> bytes:
    return packed(**{"factor": str(number).encode(), "code/inference.py": MANY.encode()})


@pytest.fixture(scope="module")
def many(served: Served) -> Served:
    """A multi-model endpoint without any model yet."""
    served.platform.boto3("s3").create_bucket(Bucket="many")
    served.sagemaker.create_model(
        ModelName="many",
        ExecutionRoleArn=ROLE,
        PrimaryContainer={
            "Image": IMAGE,
            "Mode": "MultiModel",
            "ModelDataUrl": "s3://many/models/",
            "MultiModelConfig": {"ModelCacheSetting": "Enabled"},
            "Environment": {"SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "5"},
        },
    )
    described = served.sagemaker.describe_model(ModelName="many")["PrimaryContainer"]
    assert (described["Mode"], described["ModelDataUrl"]) == ("MultiModel", "s3://many/models/")
    found = served.endpoint("many")
    assert found["EndpointStatus"] == "InService", found
    return served


STUCK = "import time\ndef model_fn(model_dir): time.sleep(3600)"


@pytest.fixture(scope="module")
def stuck(many: Served) -> "Iterator[Future[tuple[dict[str, Any], int]]]":
    """The error of a request to a model whose load hangs, and the model's requests in flight then.

    It takes a minute, in which other tests of the endpoint run.
    """
    put(many, "stuck.tar.gz", packed(**{"code/inference.py": STUCK.encode()}))
    patient = many.platform.boto3(
        "sagemaker-runtime", retries={"total_max_attempts": 1}, read_timeout=90
    )
    order = {"EndpointName": "many", "TargetModel": "stuck.tar.gz", "ContentType": ROW}

    def ended() -> tuple[dict[str, Any], int]:
        with pytest.raises(ClientError) as caught:
            patient.invoke_endpoint(**order, Body=b"2")
        return caught.value.response, many.models("many")["stuck.tar.gz"]["in_flight"]

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(ended)


def put(served: Served, name: str, content: bytes) -> None:
    served.s3.put_object(Bucket="many", Key=f"models/{name}", Body=content)


def asked(served: Served, target: str, body: bytes = b"2") -> Any:
    return json.loads(served.invoke("many", ROW, body, TargetModel=target))


@pytest.mark.usefixtures("stuck")
def test_models_are_served_once_their_objects_are_there(many: Served) -> None:
    for number in (1, 2, 3):
        put(many, f"a/m{number}.tar.gz", factor(number))
    with ThreadPoolExecutor(6) as pool:
        answers = pool.map(lambda it: asked(many, f"a/m{it}.tar.gz"), (1, 2, 3, 1, 2, 3))
        assert list(answers) == [[2.0], [4.0], [6.0], [2.0], [4.0], [6.0]]


@cases(
    "target, content, code, message",
    case("no such object", "gone.tar.gz", None, "ValidationError", "Failed to download model data"),
    case("a path that leads out", "../x.tar.gz", None, "ValidationError",
        "no path below ModelDataUrl"),
    case("no archive", "bad.tar.gz", b"no archive", "ValidationError", "bad.tar.gz"),
    case("a model that does not load", "torn.tar.gz",
        packed(**{"code/inference.py": MANY.encode()}), "ModelError", "No such file"),
)  # fmt: skip
def test_a_model_that_cannot_be_had_is_refused_with_the_cause(
    many: Served, target: str, content: bytes | None, code: str, message: str
) -> None:
    if content is not None:
        put(many, target, content)
    put(many, "good.tar.gz", factor(5))
    with pytest.raises(ClientError) as caught:
        asked(many, target)
    assert caught.value.response["Error"]["Code"] == code
    assert message in caught.value.response["Error"]["Message"]
    assert asked(many, "good.tar.gz") == [10.0]


def test_only_requests_to_multi_model_endpoints_name_a_model(many: Served) -> None:
    many.deployed("alone", "inside")
    with pytest.raises(ClientError, match="no multi-model container"):
        many.invoke("alone", ROW, b"1", TargetModel="a/m1.tar.gz")
    with pytest.raises(ClientError, match="is multi-model; name the model"):
        many.invoke("many", ROW, b"1")


def test_a_model_whose_process_dies_is_served_again(many: Served) -> None:
    put(many, "dying.tar.gz", factor(7))
    assert asked(many, "dying.tar.gz") == [14.0]
    with pytest.raises(ClientError, match="ModelError"):
        asked(many, "dying.tar.gz", b"die")
    assert asked(many, "dying.tar.gz") == [14.0]


def test_loads_of_models_are_metrics(many: Served) -> None:
    put(many, "counted.tar.gz", factor(3))
    for _ in range(3):
        assert asked(many, "counted.tar.gz") == [6.0]

    cloudwatch, now = many.platform.boto3("cloudwatch"), SystemClock().now()

    def samples(name: str, statistic: str) -> float:
        found = cloudwatch.get_metric_statistics(
            Namespace="AWS/SageMaker", MetricName=name, Period=60, Statistics=[statistic],
            StartTime=now - 600, EndTime=now + 120,
            Dimensions=[
                {"Name": "EndpointName", "Value": "many"},
                {"Name": "VariantName", "Value": "AllTraffic"},
            ],
        )  # fmt: skip
        return float(sum(it[statistic] for it in found["Datapoints"]))

    until(lambda: samples("ModelCacheHit", "Sum") >= 2, "hits", 30)
    for name in ("ModelLoadingWaitTime", "ModelDownloadingTime", "ModelLoadingTime"):
        assert samples(name, "SampleCount") >= 1, name
        assert samples(name, "Sum") > 1000, f"{name} is in microseconds"
    assert samples("ModelCacheHit", "SampleCount") > samples("ModelCacheHit", "Sum")
    shown = many.platform.cli("explain", "--endpoint", "many")
    assert "counted.tar.gz" in shown.stdout
    assert "in memory" in shown.stdout


HANGING = (
    MANY
    + """
import sys, time
def output_fn(prediction, accept):
    if prediction[0] < 0:
        time.sleep(600)
    print("x" * (1 << 22))
    return str(prediction)
"""
)


def test_a_model_that_hangs_or_floods_its_log_holds_up_no_other(many: Served) -> None:
    code = packed(**{"factor": b"4", "code/inference.py": HANGING.encode()})
    put(many, "hanging.tar.gz", code)
    put(many, "beside.tar.gz", factor(9))
    assert [asked(many, "hanging.tar.gz"), asked(many, "beside.tar.gz")] == [[8.0], [18.0]]
    with ThreadPoolExecutor(1) as pool:
        hangs = pool.submit(asked, many, "hanging.tar.gz", b"-1")
        while not hangs.done():
            assert asked(many, "beside.tar.gz") == [18.0]
        with pytest.raises(ClientError, match="a request took more than 5 s"):
            hangs.result()
    assert asked(many, "hanging.tar.gz") == [8.0]


BALLAST = """
import os
import numpy
def model_fn(model_dir):
    return numpy.ones(int(open(os.path.join(model_dir, "size")).read()) // 8)
def predict_fn(data, model):
    return [float(model[0])]
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_a_model_larger_than_the_instance_is_refused_and_tried_once(served: Served) -> None:
    small = Models(served.platform, "small", IMAGE).serving
    names = [
        small.put(f"m{number}.tar.gz", {"factor": str(number), "code/inference.py": MANY})
        for number in (3, 4)
    ]
    assert [small.eventually(name, "2", ROW) for name in names] == [[6.0], [8.0]]
    size = {"size": str(4 * 2**30), "code/inference.py": BALLAST}
    large = small.put("large.tar.gz", size)
    found = small.refusal(large, "1", ROW)
    assert (found["Code"], found["status"]) == ("ModelError", 507), found
    assert "needs" in found["Message"], found
    assert [small.eventually(name, "3", ROW) for name in names] == [[9.0], [12.0]]
    time.sleep(KEPT_S)
    assert small.refusal(large, "1", ROW)["status"] == 507
    assert small.in_memory() >= {*names}, "they do not leave for it again"
    small.put("large.tar.gz", {**size, "size": "8"})
    assert small.eventually(large, "1", ROW) == [1.0]


def test_an_object_that_is_replaced_is_served_once_the_old_one_has_left(many: Served) -> None:
    put(many, "replaced.tar.gz", factor(2))
    assert asked(many, "replaced.tar.gz") == [4.0]
    put(many, "replaced.tar.gz", factor(3))
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: asked(many, "replaced.tar.gz"), range(12)))
    assert answers == [[4.0]] * 12, "as on AWS: nothing is half old, half new"


@pytest.mark.thorough
def test_the_sdks_own_multi_model_class_deploys_adds_lists_and_predicts(served: Served) -> None:
    python = virtual_environment("sdk2", "sagemaker<3", "awscli") / "python"
    program = Path(__file__).parent / "sdk_programs" / "sdk2_multi_model.py"
    done = served.platform.exec([str(python), "-W", "ignore", str(program)], SHORT_WAITS)
    output = json.loads(done.stdout.splitlines()[-1])
    assert output == {
        "listed": ["added/times-2.tar.gz", "added/times-3.tar.gz"],
        "answers": [[14.0], [21.0]],
    }


@pytest.mark.thorough
def test_a_model_whose_load_hangs_is_not_ready_after_a_minute_and_holds_up_no_other(
    many: Served, stuck: "Future[tuple[dict[str, Any], int]]"
) -> None:
    put(many, "beside-stuck.tar.gz", factor(9))
    while not stuck.done():
        assert asked(many, "beside-stuck.tar.gz") == [18.0]
        time.sleep(0.1)
    error, in_flight = stuck.result()
    assert error["Error"]["Code"] == "ModelNotReadyException"
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 429
    assert in_flight == 1, "its load continues, up to 360 s"


@pytest.mark.thorough
def test_a_runtime_that_is_not_there_is_installed_when_it_is_first_needed(tmp_path: Path) -> None:
    environment = {VARIABLE: str(tmp_path / "runtimes"), "HOSTELRY_CUSTOM_CODE": "trusted"}
    with Platform(tmp_path / "home", environment=environment) as platform:
        sagemaker = platform.boto3("sagemaker")
        for name in ("one", "two"):
            source = {"Mode": "MultiModel", "ModelDataUrl": "s3://none/models/"}
            sagemaker.create_model(
                ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer={"Image": IMAGE, **source}
            )
            variant = {
                "VariantName": "v", "ModelName": name, "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 1,
            }  # fmt: skip
            sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
            sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)

        installing = "installing the runtime sklearn:1.2"
        until(lambda: installing in platform.cli("status").stdout, "status says so", 60)

        def in_service() -> bool:
            found = sagemaker.list_endpoints(StatusEquals="InService")["Endpoints"]
            return len(found) == 2

        until(in_service, "both are InService", 120)
        listed = platform.environment | environment
        runtimes = subprocess.run(
            [*CLI, "runtimes", "list"], env=listed, capture_output=True, text=True, check=True
        ).stdout
    assert "sklearn-1.2 (cpu" in runtimes
    compiled = (tmp_path / "runtimes").glob("sklearn-1.2/lib/*/site-packages/pandas/__pycache__/*")
    assert any(compiled), "starts compile nothing"


def eventually(many: Served, target: str) -> Any:
    """Return the answer. Retries like an AWS client until it exists."""

    def answer() -> Any:
        try:
            return asked(many, target)
        except ClientError as error:
            if error.response["Error"]["Code"] in ("ServiceUnavailable", "ModelError"):
                return None
            raise

    return until(answer, f"{target} answers", 60)


def test_many_cold_models_asked_for_at_once_are_loaded_once_each(many: Served) -> None:
    put(many, "warm.tar.gz", factor(4))
    assert asked(many, "warm.tar.gz") == [8.0]
    names = [f"cold/{number}.tar.gz" for number in range(50)]
    for number, name in enumerate(names):
        put(many, name, factor(number))
    with ThreadPoolExecutor(24) as pool:
        cold = [pool.submit(asked, many, name) for name in (*names, *names)]
        assert asked(many, "warm.tar.gz") == [8.0]
        assert [it.result() for it in cold] == [[2.0 * number] for number in (*range(50),) * 2]

    def in_use() -> bool:  # a gateway worker keeps a lease a while, for requests that may follow
        return any(it["in_flight"] for name, it in many.models("many").items() if name in names)

    until(lambda: not in_use(), "leases are given back")
    found = many.models("many")
    assert sum(found[name]["hits"] for name in names) <= 50, "one of two waited for the load"
    assert all(found[name]["loaded"] for name in names)


def test_a_model_in_memory_outlives_its_object(many: Served) -> None:
    put(many, "old.tar.gz", factor(2))
    assert asked(many, "old.tar.gz") == [4.0]
    many.platform.boto3("s3").delete_object(Bucket="many", Key="models/old.tar.gz")
    assert asked(many, "old.tar.gz") == [4.0]


@pytest.mark.parametrize("killed", ["server", "agent", "control"])
def test_models_are_served_again_after_a_kill(many: Served, killed: str) -> None:
    put(many, "kept.tar.gz", factor(6))
    assert asked(many, "kept.tar.gz") == [12.0]
    status = json.loads(many.platform.cli("status", "--json").stdout)["state"]
    (copy,) = [
        copy
        for endpoint in status["endpoints"]
        if endpoint["name"] == "many"
        for copy in endpoint["copies"]
    ]
    if killed == "server":
        os.kill(copy["pid"], signal.SIGKILL)
    elif killed == "agent":
        record = many.platform.home.instances / copy["instance"] / "agent.json"
        os.kill(json.loads(record.read_bytes())["process"]["pid"], signal.SIGKILL)
    else:
        pid = many.platform.kill("control")
        put(many, "without-control.tar.gz", factor(9))
        assert asked(many, "without-control.tar.gz") == [18.0], "it is not asked"
        many.platform.back("control", pid)
    assert eventually(many, "kept.tar.gz") == [12.0]
    put(many, f"after-{killed}.tar.gz", factor(8))
    assert eventually(many, f"after-{killed}.tar.gz") == [16.0]


@pytest.mark.thorough
def test_the_example_of_a_thousand_models_prints_its_table(served: Served) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "thousand_models.py"
    asked_for = ("--models", "20", "--seconds", "2")
    done = served.platform.exec([sys.executable, str(example), *asked_for])
    table = {line[:34].strip(): line[34:].split() for line in done.stdout.splitlines()}
    assert table["endpoints, models"] == ["1,", "20", "20,", "20"]
    assert 1 <= int(table["models in memory"][0]) <= 20
    assert table["requests, errors"][1] == "0", done.stdout
