"""An experiment on a serving endpoint: compare captured answers, then promote the shadow.

Like AWS's notebook on shadow tests by the API. Arguments: a folder with good.tar.gz,
other.tar.gz, code/good.py, code/other.py, sourcedir.tar.gz and rows.json. Run under
`hostelry exec`.
"""

import base64
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import numpy
import sagemaker
from sagemaker.model_monitor import DataCaptureConfig
from sagemaker.s3 import S3Downloader, S3Uploader
from sagemaker.sklearn.model import SKLearnModel

folder = Path(sys.argv[1])
region, role = boto3.Session().region_name, sagemaker.get_execution_role()
session = sagemaker.Session()
sm = boto3.Session().client("sagemaker")
prefix = f"s3://{session.default_bucket()}/shadow-test"
rows = json.loads((folder / "rows.json").read_text())
urls = {
    name: S3Uploader.upload(local_path=str(folder / f"{name}.tar.gz"), desired_s3_uri=prefix)
    for name in ("good", "other", "sourcedir")
}
name, captured = "shadow-experiment", f"{prefix}/captured/"
sklearn_model = SKLearnModel(
    model_data=urls["good"],
    role=role,
    entry_point="good.py",
    source_dir=str(folder / "code"),
    framework_version="1.2-1",
)
capture = DataCaptureConfig(
    enable_capture=True, sampling_percentage=100, destination_s3_uri=captured
)
predictor = sklearn_model.deploy(
    initial_instance_count=1, instance_type="ml.m5.2xlarge", data_capture_config=capture
)
first = predictor.predict(numpy.array(rows[0]).reshape(1, -1))
image = sagemaker.image_uris.retrieve("sklearn", region, version="1.2-1")
models = {"AllTraffic": "good", "Shadow-01": "other"}
for variant, archive in models.items():
    sm.create_model(
        ModelName=f"{name}-{variant}",
        ExecutionRoleArn=role,
        PrimaryContainer={
            "Image": image,
            "Mode": "SingleModel",
            "ModelDataUrl": urls[archive],
            "Environment": {
                "SAGEMAKER_CONTAINER_LOG_LEVEL": "20",
                "SAGEMAKER_SUBMIT_DIRECTORY": urls["sourcedir"],
                "SAGEMAKER_PROGRAM": f"{archive}.py",
            },
        },
    )
sm.create_inference_experiment(
    Name=name,
    Type="ShadowMode",
    Description="a shadow beside an endpoint that serves",
    RoleArn=role,
    EndpointName=predictor.endpoint_name,
    ModelVariants=[
        {
            "ModelName": f"{name}-{variant}",
            "VariantName": variant,
            "InfrastructureConfig": {
                "InfrastructureType": "RealTimeInference",
                "RealTimeInferenceConfig": {"InstanceType": "ml.m5.2xlarge", "InstanceCount": 1},
            },
        }
        for variant in models
    ],
    DataStorageConfig={"Destination": captured},
    ShadowModeConfig={
        "SourceModelVariantName": "AllTraffic",
        "ShadowModelVariants": [{"ShadowModelVariantName": "Shadow-01", "SamplingPercentage": 100}],
    },
)


def until_status(*wanted: str) -> dict[str, Any]:
    """Poll the experiment until it has this status."""
    while True:
        found: dict[str, Any] = sm.describe_inference_experiment(Name=name)
        if found["Status"] in wanted:
            return found
        time.sleep(1)


running = until_status("Running", "Cancelled")
answers = [
    float(predictor.predict(numpy.array(row).reshape(1, -1), inference_id=f"row {number}")[0])
    for number, row in enumerate(rows)
]


def recorded(variant: str) -> dict[int, float]:
    """A variant's answers by row, once all rows are captured."""
    found: dict[int, float] = {}
    deadline = time.monotonic() + 60
    place = f"{captured}{predictor.endpoint_name}/{variant}"
    while len(found) < len(rows) and time.monotonic() < deadline:
        time.sleep(2)
        for file in S3Downloader.list(place):
            for line in S3Downloader.read_file(file).splitlines():
                record = json.loads(line)
                inference_id = record["eventMetadata"].get("inferenceId")
                if inference_id is None:
                    continue
                data = base64.b64decode(record["captureData"]["endpointOutput"]["data"])
                answer = numpy.load(io.BytesIO(data))[0]
                found[int(inference_id.split(" ")[-1])] = float(answer)
    return found


by_variant = {variant: recorded(variant) for variant in models}
sm.stop_inference_experiment(
    Name=name,
    ModelVariantActions={"Shadow-01": "Promote", "AllTraffic": "Remove"},
    DesiredState="Completed",
    Reason="the shadow is better",
)
sm.describe_endpoint(EndpointName=predictor.endpoint_name)
over = until_status("Completed", "Cancelled")
described = sm.describe_endpoint(EndpointName=predictor.endpoint_name)
promoted = float(predictor.predict(numpy.array(rows[0]).reshape(1, -1))[0])
sm.delete_inference_experiment(Name=name)
config = described["EndpointConfigName"]
sm.delete_endpoint(EndpointName=predictor.endpoint_name)
for left in sm.list_endpoint_configs()["EndpointConfigs"]:
    if left["EndpointConfigName"].startswith((name, predictor.endpoint_name, config)):
        sm.delete_endpoint_config(EndpointConfigName=left["EndpointConfigName"])
for variant in models:
    sm.delete_model(ModelName=f"{name}-{variant}")
sklearn_model.delete_model()
print()  # in case the SDK's log has not ended its line
print(
    json.dumps(
        {
            "first": float(first[0]),
            "running": [running["Status"], running.get("StatusReason")],
            "answers": answers,
            "recorded": by_variant,
            "over": [over["Status"], over.get("StatusReason")],
            "variants": [it["VariantName"] for it in described["ProductionVariants"]],
            "promoted": promoted,
        }
    )
)
