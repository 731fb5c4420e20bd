"""A failed deployment raises the SDK's exception, with the endpoint's FailureReason.

Argument: the fault: `data` (missing in S3), `crash` (of the server), or `image` (unknown).
"""

import json
import sys
import tarfile
import tempfile
import uuid
from pathlib import Path

from sagemaker.core.exceptions import UnexpectedStatusException
from sagemaker.core.helper.session_helper import Session
from sagemaker.core.resources import Endpoint, EndpointConfig
from sagemaker.core.training.configs import Compute
from sagemaker.serve.model_builder import ModelBuilder

(wrong,) = sys.argv[1:]
name = f"failure-{wrong}-{uuid.uuid4().hex[:8]}"
IMAGES = {"data": "echo:1", "crash": "echo:1", "image": "no-such.invalid/image:1"}
with tempfile.TemporaryDirectory() as folder:
    archive = Path(folder) / "model.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(__file__, arcname="any.py")
    artifact = Session().upload_data(str(archive), key_prefix=name)
builder = ModelBuilder(
    image_uri=IMAGES[wrong],
    s3_model_data_url=f"{artifact}-missing.tar.gz" if wrong == "data" else artifact,
    env_vars={"ECHO_MODE": "exit" if wrong == "crash" else "ok"},
    compute=Compute(instance_type="ml.m5.xlarge", instance_count=1),
)
model = builder.build(model_name=name)
try:
    builder.deploy(endpoint_name=name)
    raised = ""
except UnexpectedStatusException as error:
    raised = str(error)
endpoint = Endpoint.get(name)
reason = endpoint.failure_reason
endpoint.delete()
endpoint.wait_for_delete()
EndpointConfig.get(name).delete()
model.delete()
print()  # in case the SDK's log has not ended its line
print(json.dumps({"raised": raised, "reason": reason}))
