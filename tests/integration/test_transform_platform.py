"""Transform jobs through boto3 and the SDK's own Transformer: CSV through a real model."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.platform import Platform
from tests.integration.served_models import IMAGE, ROLE, Served, sklearn_runtimes
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


def test_the_sdks_transformer_scores_lines_of_csv(served: Served) -> None:
    python = virtual_environment("sdk2", "sagemaker<3", "awscli") / "python"
    command = [str(python), "-W", "ignore", str(PROGRAM), "linear"]
    done = served.platform.exec([*command, json.dumps(served.expected["rows"])])
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
