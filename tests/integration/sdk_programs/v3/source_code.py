"""Weights in S3 and the user's code. ModelBuilder packs both into one archive. Build to delete."""

import json
import tarfile
import tempfile
import uuid
from pathlib import Path

from sagemaker.core import image_uris
from sagemaker.core.helper.session_helper import Session, get_execution_role
from sagemaker.core.resources import EndpointConfig
from sagemaker.core.training.configs import Compute, SourceCode
from sagemaker.serve.mode.function_pointers import Mode
from sagemaker.serve.model_builder import ModelBuilder

CODE = """
import json, pathlib

def model_fn(model_dir):
    return json.loads((pathlib.Path(model_dir) / "weights.json").read_text())

def predict_fn(data, model):
    return [sum(a * b for a, b in zip(row, model)) for row in data]
"""
session = Session()
unique_id = uuid.uuid4().hex[:8]
with tempfile.TemporaryDirectory() as folder:
    weights, source_dir = Path(folder) / "weights.json", Path(folder) / "source"
    weights.write_text("[1, 10, 100]")
    archive = Path(folder) / "model.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(weights, arcname="weights.json")
    artifact = session.upload_data(str(archive), key_prefix=f"source-code/{unique_id}")
    source_dir.mkdir()
    (source_dir / "inference.py").write_text(CODE)
    builder = ModelBuilder(
        image_uri=image_uris.retrieve(
            framework="sklearn",
            region=session.boto_region_name,
            version="1.2-1",
            instance_type="ml.m5.large",
            image_scope="inference",
        ),
        source_code=SourceCode(source_dir=str(source_dir), entry_script="inference.py"),
        s3_model_data_url=artifact,
        role_arn=get_execution_role(sagemaker_session=session),
        compute=Compute(instance_type="ml.m5.large", instance_count=1),
        sagemaker_session=session,
    )
    core_model = builder.build(model_name=f"code-{unique_id}", mode=Mode.SAGEMAKER_ENDPOINT)
endpoint = builder.deploy(endpoint_name=f"code-{unique_id}")
result = endpoint.invoke(body=json.dumps([[1, 2, 3], [4, 5, 6]]), content_type="application/json")
answer = json.loads(result.body.read().decode())
config = EndpointConfig.get(endpoint_config_name=endpoint.endpoint_name)
core_model.delete()
endpoint.delete()
config.delete()
print()  # in case the SDK's log has not ended its line
print(json.dumps({"answer": answer, "packed": builder.repacked_model_data != artifact}))
