"""Transform jobs through boto3 and the SDK's own Transformer: CSV through a real model."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.integration.platform import Platform, until
from tests.integration.sdk_rig import SHORT_WAITS
from tests.integration.served_models import IMAGE, ROLE, Served, sklearn_runtimes
from tests.integration.transform_rig import ended
from tests.integration.virtual_environments import virtual_environment

from hostelry.base.runtimes import VARIABLE, runtime_python

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
PROGRAM = Path(__file__).parent / "sdk_programs" / "sdk2_transform.py"


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
