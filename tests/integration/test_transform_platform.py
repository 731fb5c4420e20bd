"""Transform and recommendations jobs through boto3 and the SDK: CSV through a real model."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.integration.batch_rig import IMAGE as LLM_IMAGE
from tests.integration.lmi_rig import byte_model
from tests.integration.platform import Platform, until
from tests.integration.sdk_rig import SHORT_WAITS, TIME_LIMIT_S
from tests.integration.served_models import IMAGE, ROLE, Served, packed, sklearn_runtimes
from tests.integration.transform_rig import ended
from tests.integration.virtual_environments import virtual_environment

from hostelry.base.runtimes import VARIABLE, runtime_python

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
PROGRAM = Path(__file__).parent / "sdk_programs" / "sdk2_transform.py"
RIGHT_SIZE = PROGRAM.with_name("sdk2_right_size.py")


@pytest.fixture(scope="module")
def runtimes() -> Path:
    return sklearn_runtimes()


@pytest.fixture(scope="module")
def served(runtimes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    environment = {VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted"}
    home = tmp_path_factory.mktemp("home") / "home"
    with Platform(home, environment=environment) as platform:
        python = runtime_python(runtimes, "sklearn-1.2")
        found = Served(platform, tmp_path_factory.mktemp("trained"), python)
        found.sagemaker.create_model(
            ModelName="linear",
            ExecutionRoleArn=ROLE,
            PrimaryContainer={"Image": IMAGE, "ModelDataUrl": "s3://models/inside.tar.gz"},
        )
        yield found


def numbers(text: str) -> list[float]:
    """The numbers of an output, in any of the forms that a CSV encoder has."""
    return [float(it) for it in text.replace(",", "\n").split()]


@pytest.mark.thorough
def test_the_sdks_transformer_scores_lines_of_csv(served: Served) -> None:
    python = virtual_environment("sdk2", "sagemaker<3", "awscli") / "python"
    command = [str(python), "-W", "ignore", str(PROGRAM), "linear"]
    done = served.platform.exec([*command, json.dumps(served.expected["rows"])], SHORT_WAITS)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["status"] == "Completed"
    assert found["attached"] == ["linear", "text/csv", "Line"]
    predicted = served.expected["predicted"]
    assert numbers(found["outputs"]["a.csv"]) == pytest.approx(predicted, abs=1e-5)
    assert numbers(found["outputs"]["sub/b.csv"]) == pytest.approx(predicted[::-1], abs=1e-5)


def test_status_and_a_watch_show_a_job(served: Served) -> None:
    served.s3.create_bucket(Bucket="rows")
    served.s3.put_object(Bucket="rows", Key="in/a.csv", Body=b"1.0,2.0\n30.0,40.0\n")
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://rows/in/"}}
    served.sagemaker.create_transform_job(
        TransformJobName="nightly",
        ModelName="linear",
        TransformInput={"DataSource": source, "ContentType": "text/csv"},
        TransformOutput={"S3OutputPath": "s3://rows/out/", "Accept": "text/csv"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )
    assert "transform job nightly  InProgress" in served.platform.cli("status").stdout
    watched = served.platform.jobs("watch", "nightly")
    assert "nightly  Completed [" in watched
    waiter = served.sagemaker.get_waiter("transform_job_completed_or_stopped")
    waiter.wait(TransformJobName="nightly", WaiterConfig={"Delay": 1, "MaxAttempts": 90})
    assert "transform job" not in served.platform.cli("status").stdout
    body = served.s3.get_object(Bucket="rows", Key="out/a.csv.out")["Body"].read()
    assert numbers(body.decode()) == pytest.approx(served.expected["predicted"], abs=1e-5)


def test_one_of_many_models_is_run_and_what_was_read_and_written_is_captured(
    served: Served,
) -> None:
    s3, key = served.s3, served.platform.boto3("kms").create_key()["KeyMetadata"]
    served.sagemaker.create_model(
        ModelName="many",
        ExecutionRoleArn=ROLE,
        PrimaryContainer={"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": "s3://models/"},
    )
    s3.create_bucket(Bucket="seen")
    rows = {"a": b"1.0,2.0\n30.0,40.0\n", "sub/b": b"1.0,2.0\n3.0,4.0\n", "odd": b"x,y\n"}
    for name, body in rows.items():
        s3.put_object(Bucket="seen", Key=f"in/{name}.csv", Body=body)
    started = served.sagemaker.create_transform_job(
        TransformJobName="captured",
        ModelName="many",
        ModelClientConfig={"InvocationsMaxRetries": 0},
        TransformInput=lines_of_csv("s3://seen/in/"),
        TransformOutput={
            "S3OutputPath": "s3://seen/out",
            "Accept": "text/csv",
            "AssembleWith": "Line",
            "KmsKeyId": key["KeyId"],
        },
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
        DataCaptureConfig={
            "DestinationS3Uri": "s3://seen/capture",
            "KmsKeyId": key["KeyId"],
            "GenerateInferenceId": True,
        },
        Tags=[{"Key": "hostelry:target-model", "Value": "inside.tar.gz"}],
    )
    assert started["TransformJobArn"].endswith(":transform-job/captured")
    found = ended(served, "captured")
    assert found["TransformJobStatus"] == "Failed"
    assert "1 of 3 objects failed. The first: s3://seen/in/odd.csv" in found["FailureReason"]
    answers = [it.split(",") for it in stored(served, "seen", "out/a.csv.out", key).splitlines()]
    assert [float(it[0]) for it in answers] == pytest.approx(served.expected["predicted"], abs=1e-5)
    assert len({it[1] for it in answers}) == len(answers), "each answer has an id of its own"
    times = [datetime.fromisoformat(it[2]) for it in answers]
    assert all(abs((it - found["CreationTime"]).total_seconds()) < 600 for it in times)
    hour = found["CreationTime"].astimezone(UTC).strftime("%Y/%m/%d/%H")
    manifests = {
        kind: json.loads(stored(served, "seen", f"capture/{kind}/{hour}/captured-00001.json", key))
        for kind in ("input", "output")
    }
    assert manifests == {
        "input": [{"prefix": "s3://seen/"}, "in/a.csv", "in/sub/b.csv"],
        "output": [{"prefix": "s3://seen/out/"}, "a.csv.out", "sub/b.csv.out"],
    }
    settings, failure = data_log(served, "captured")
    assert settings == "MaxConcurrentTransforms=1, MaxPayloadInMB=6, BatchStrategy=MultiRecord"
    assert failure.startswith("s3://seen/in/odd.csv: The model answered 500 to records 1 to 1")


def test_an_output_whose_key_is_disabled_fails_the_job_with_the_reason(served: Served) -> None:
    kms = served.platform.boto3("kms")
    key = kms.create_key()["KeyMetadata"]["KeyId"]
    kms.disable_key(KeyId=key)
    served.s3.create_bucket(Bucket="sealed")
    served.s3.put_object(Bucket="sealed", Key="in/a.csv", Body=b"1.0,2.0\n3.0,4.0\n")
    served.sagemaker.create_transform_job(
        TransformJobName="sealed",
        ModelName="linear",
        ModelClientConfig={"InvocationsMaxRetries": 0},
        TransformInput=lines_of_csv("s3://sealed/in/"),
        TransformOutput={"S3OutputPath": "s3://sealed/out", "KmsKeyId": key},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )
    found = ended(served, "sealed")
    assert found["TransformJobStatus"] == "Failed"
    assert "s3://sealed/in/a.csv" in found["FailureReason"]
    assert "isabled" in found["FailureReason"]
    assert "Contents" not in served.s3.list_objects_v2(Bucket="sealed", Prefix="out")


def test_a_recommendations_job_measures_its_configurations_and_leaves_nothing(
    served: Served,
) -> None:
    served.s3.create_bucket(Bucket="samples")
    archive = packed(**{"rows.csv": b"1.0,2.0\n3.0,4.0\n"})
    served.s3.put_object(Bucket="samples", Key="rows.tar.gz", Body=archive)
    phase = {"InitialNumberOfUsers": 1, "SpawnRate": 0, "DurationInSeconds": 3}
    program = {"Name": "SAGEMAKER_PROGRAM", "Value": ["inference.py", "missing.py"]}
    served.sagemaker.create_inference_recommendations_job(
        JobName="sizes",
        JobType="Advanced",
        RoleArn=ROLE,
        InputConfig={
            "ModelName": "linear",
            "JobDurationInSeconds": 120,
            "TrafficPattern": {"Phases": [phase, {**phase, "InitialNumberOfUsers": 2}]},
            "ResourceLimit": {"MaxNumberOfTests": 2, "MaxParallelOfTests": 2},
            "EndpointConfigurations": [
                {
                    "InstanceType": "ml.c5.large",
                    "EnvironmentParameterRanges": {"CategoricalParameterRanges": [program]},
                }
            ],
            "ContainerConfig": {
                "PayloadConfig": {
                    "SamplePayloadUrl": "s3://samples/rows.tar.gz",
                    "SupportedContentTypes": ["text/csv"],
                }
            },
        },
        StoppingConditions={
            "MaxInvocations": 1_000_000,
            "ModelLatencyThresholds": [{"Percentile": "P95", "ValueInMilliseconds": 5_000}],
        },
    )
    found = recommended(served, "sizes")
    assert found["Status"] == "COMPLETED"
    (best,) = found["InferenceRecommendations"]
    metrics = best["Metrics"]
    assert metrics["MaxInvocations"] > 60
    assert 0 < metrics["ModelLatency"] <= 5_000
    assert metrics["ModelSetupTime"] >= 1
    assert "CostPerHour" not in metrics, "no price is known"
    assert best["RecommendationId"].startswith("sizes/")
    assert best["EndpointConfiguration"]["InstanceType"] == "ml.c5.large"
    took = best["InvocationEndTime"] - best["InvocationStartTime"]
    assert 6 <= took.total_seconds() < 12
    steps = served.sagemaker.list_inference_recommendations_job_steps(JobName="sizes")["Steps"]
    assert [it["Status"] for it in steps] == ["COMPLETED", "FAILED"]
    assert "missing.py" in steps[1]["InferenceBenchmark"]["FailureReason"]
    logs = served.platform.boto3("logs")
    until(lambda: measured_users(execution_log(logs, "sizes")) == ["1", "2"], "each phase's line")
    lines = execution_log(logs, "sizes")
    assert lines[-1] == "Job sizes is COMPLETED"
    until(lambda: count_calls(served, "recommendations job sizes") > 60, "calls of the job")
    shown = served.platform.looker().list_endpoints()["Endpoints"]
    assert [it for it in shown if "recommendation" in it["EndpointName"]] == []


@pytest.mark.thorough
def test_right_size_of_the_sdk_works_while_processes_are_killed(served: Served) -> None:
    served.s3.create_bucket(Bucket="sized")
    archive = packed(**{"rows.csv": b"1.0,2.0\n3.0,4.0\n"})
    served.s3.put_object(Bucket="sized", Key="rows.tar.gz", Body=archive)
    given = (IMAGE, "s3://models/inside.tar.gz", "s3://sized/rows.tar.gz", ROLE, "ml.c5.large")
    threads = json.dumps({"OMP_NUM_THREADS": ["1", "2"]})
    command = right_size(*given, "text/csv", "SAGEMAKER-SCIKIT-LEARN", threads)
    platform, logs = served.platform, served.platform.boto3("logs")
    with ThreadPoolExecutor(1) as pool:
        program = pool.submit(platform.exec, command, SHORT_WAITS)
        jobs = platform.looker().list_inference_recommendations_jobs
        until(lambda: jobs(NameContains="sizes-")["InferenceRecommendationsJobs"], "the job", 60)
        name = jobs(NameContains="sizes-")["InferenceRecommendationsJobs"][0]["JobName"]
        until(lambda: windows_in(execution_log(logs, name)) >= 1, "the first window", 60)
        platform.back("jobs", platform.kill("jobs"))
        until(lambda: windows_in(execution_log(logs, name)) >= 2, "the load is repeated", 60)
        platform.back("control", platform.kill("control"))
        done = program.result(TIME_LIMIT_S)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["recommended"] == ["ml.c5.large", "ml.c5.large"]
    assert found["metrics"]["MaxInvocations"] > 60
    assert found["status"] == "InService"
    assert found["environment"]["OMP_NUM_THREADS"] in ("1", "2")
    steps = served.sagemaker.list_inference_recommendations_job_steps(JobName=name)["Steps"]
    assert [it["Status"] for it in steps] == ["COMPLETED", "COMPLETED"]
    assert "Step 1: 1 concurrent user, " in done.stdout, "the SDK prints the windows"


@pytest.mark.thorough
def test_right_size_of_the_sdk_measures_an_llm(served: Served, tmp_path: Path) -> None:
    folder = byte_model(tmp_path)
    files = {it.name: it.read_bytes() for it in folder.iterdir() if it.is_file()}
    request = {"inputs": "What are falcons?", "parameters": {"max_new_tokens": 8}}
    payload = packed(**{"request.json": json.dumps(request).encode()})
    served.s3.create_bucket(Bucket="llms")
    served.s3.put_object(Bucket="llms", Key="tiny.tar.gz", Body=packed(**files))
    served.s3.put_object(Bucket="llms", Key="request.tar.gz", Body=payload)
    given = (LLM_IMAGE, "s3://llms/tiny.tar.gz", "s3://llms/request.tar.gz", ROLE, "ml.c5.large")
    batches = json.dumps({"OPTION_MAX_ROLLING_BATCH_SIZE": ["1", "4"]})
    command = right_size(*given, "application/json", "PYTORCH", batches)
    done = served.platform.exec(command, SHORT_WAITS)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["recommended"] == ["ml.c5.large", "ml.c5.large"]
    assert found["metrics"]["MaxInvocations"] > 60
    assert found["metrics"]["ModelLatency"] > 0
    assert found["status"] == "InService"
    assert found["environment"]["OPTION_MAX_ROLLING_BATCH_SIZE"] in ("1", "4")


def right_size(*given: str) -> list[str]:
    """The command of the program that finds the right size of a model."""
    python = virtual_environment("sdk2", "sagemaker<3", "awscli") / "python"
    return [str(python), "-W", "ignore", str(RIGHT_SIZE), *given]


def windows_in(lines: list[str]) -> int:
    """The number of lines about windows."""
    return sum(1 for it in lines if "invocations/minute" in it)


def recommended(served: Served, job: str) -> dict[str, Any]:
    """A recommendations job, after its end."""

    def over() -> dict[str, Any] | None:
        looker = served.platform.looker()
        found: dict[str, Any] = looker.describe_inference_recommendations_job(JobName=job)
        return None if found["Status"] in ("PENDING", "IN_PROGRESS", "STOPPING") else found

    found: dict[str, Any] = until(over, f"job {job} ends", 120)
    return found


def count_calls(served: Served, name: str) -> int:
    """The calls that `hostelry cost` shows for a name."""
    rows = json.loads(served.platform.cli("cost", "--last", "1h", "--json").stdout)["rows"]
    return sum(it["calls"] for it in rows if it["name"] == name)


def measured_users(lines: list[str]) -> list[str]:
    """The numbers of users of the windows that a job's lines show."""
    users = [it.partition(" concurrent user") for it in lines if "invocations/minute" in it]
    return sorted({before.rpartition(" ")[2] for before, _, _ in users})


def execution_log(logs: Any, job: str) -> list[str]:
    """The lines of a recommendations job, as the SDK reads them."""
    group = "/aws/sagemaker/InferenceRecommendationsJobs"
    events = logs.get_log_events(logGroupName=group, logStreamName=f"{job}/execution")["events"]
    return [it["message"] for it in events]


def data_log(served: Served, job: str) -> list[str]:
    """The lines of a job's only instance, once the last object's lines exist."""
    logs, group = served.platform.boto3("logs"), "/aws/sagemaker/TransformJobs"

    def found() -> list[str]:
        lines = logs.filter_log_events(logGroupName=group, logStreamNamePrefix=f"{job}/")["events"]
        return [it["message"] for it in lines if it["logStreamName"].endswith("/data-log")]

    until(lambda: len(found()) >= 2, "the data log has its lines", 20)
    return found()


def lines_of_csv(uri: str) -> dict[str, Any]:
    """The TransformInput of lines below a prefix."""
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}}
    return {"DataSource": source, "ContentType": "text/csv", "SplitType": "Line"}


def stored(served: Served, bucket: str, name: str, key: dict[str, Any]) -> str:
    """An object's text, which must be encrypted under `key`."""
    found = served.s3.get_object(Bucket=bucket, Key=name)
    assert found["SSEKMSKeyId"] == key["Arn"]
    text: str = found["Body"].read().decode()
    return text
