"""First program of a user of the SageMaker Python SDK v2. Run under `hostelry exec`."""

import json
import tempfile
from pathlib import Path

import boto3
from sagemaker import Session, get_execution_role, image_uris
from sagemaker.model import Model

role = get_execution_role()
session = Session()
bucket = session.default_bucket()
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "weights.txt"
    path.write_text("weights")
    uploaded = session.upload_data(str(path), key_prefix="from-sdk2")
content = session.read_s3_file(bucket, "from-sdk2/weights.txt")
image = image_uris.retrieve("djl-deepspeed", region=session.boto_region_name, version="0.23.0")
model = Model(image_uri=image, model_data=uploaded, role=role, name="model-from-sdk2")
model.create(instance_type="ml.m5.large")
described = boto3.client("sagemaker").describe_model(ModelName=model.name)
model.delete_model()
print(
    json.dumps(
        {
            "role": role,
            "bucket": bucket,
            "uploaded": uploaded,
            "content": content,
            "image": image,
            "model": described["ModelArn"],
        }
    )
)
