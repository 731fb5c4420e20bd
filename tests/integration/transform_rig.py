"""A platform with a model for rows of two numbers, and transform jobs with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from tests.integration.platform import Platform, until
from tests.integration.served_models import CODE, IMAGE, ROLE, Served, packed, sklearn_runtimes

from hostelry.base.runtimes import VARIABLE, runtime_python


@contextmanager
def serving_rows(folder: Path) -> Iterator[Served]:
    """The platform with its home in `folder`, the model "linear" and the bucket "rows"."""
    runtimes = sklearn_runtimes()
    environment = {VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted"}
    trained = folder / "trained"
    trained.mkdir()
    with Platform(folder / "home", environment=environment) as platform:
        python = runtime_python(runtimes, "sklearn-1.2")
        found = Served(platform, trained, python)
        model = (trained / "model.joblib").read_bytes()
        code = CODE.replace("predict(data)", "predict(data.reshape(-1, 2))").encode()
        archive = packed(**{"model.joblib": model, "code/inference.py": code})
        found.s3.put_object(Bucket="models", Key="rows.tar.gz", Body=archive)
        found.sagemaker.create_model(
            ModelName="linear",
            ExecutionRoleArn=ROLE,
            PrimaryContainer={"Image": IMAGE, "ModelDataUrl": "s3://models/rows.tar.gz"},
        )
        found.s3.create_bucket(Bucket="rows")
        yield found


def create(served: Served, name: str, uri: str, **given: Any) -> None:
    """Start a job whose outputs are below ``s3://rows/NAME``. `given` replaces its members."""
    kind = given.pop("S3DataType", "S3Prefix")
    split = given.pop("SplitType", "Line")
    asked = {
        "TransformJobName": name,
        "ModelName": "linear",
        "TransformInput": {
            "DataSource": {"S3DataSource": {"S3DataType": kind, "S3Uri": uri}},
            "ContentType": "text/csv",
            "SplitType": split,
        },
        "TransformOutput": {
            "S3OutputPath": f"s3://rows/{name}",
            "Accept": "text/csv",
            "AssembleWith": "Line",
        },
        "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
    }
    served.sagemaker.create_transform_job(**{**asked, **given})


def ended(served: Served, name: str, within_s: float = 120) -> dict[str, Any]:
    """The job, after its end."""

    def over() -> dict[str, Any] | None:
        found: dict[str, Any] = served.sagemaker.describe_transform_job(TransformJobName=name)
        return None if found["TransformJobStatus"] in ("InProgress", "Stopping") else found

    def over_or_down() -> dict[str, Any] | None:
        try:
            return over()
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                raise
            return None
        except BotoCoreError:
            return None

    found: dict[str, Any] = until(over_or_down, f"job {name} ends", within_s)
    return found


def output(served: Served, key: str) -> bytes:
    body: bytes = served.s3.get_object(Bucket="rows", Key=key)["Body"].read()
    return body


def keys(served: Served, prefix: str) -> list[str]:
    listed = served.s3.list_objects_v2(Bucket="rows", Prefix=prefix)
    return [it["Key"] for it in listed.get("Contents", ())]
