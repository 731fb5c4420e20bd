"""A local model folder with its own code, by the SDK's InferenceSpec, from build to delete."""

import json
import tempfile
import uuid
from pathlib import Path

from sagemaker.core import image_uris
from sagemaker.core.resources import EndpointConfig
from sagemaker.core.training.configs import Compute
from sagemaker.serve.builder.schema_builder import SchemaBuilder
from sagemaker.serve.model_builder import ModelBuilder
from sagemaker.serve.spec.inference_spec import InferenceSpec
from sagemaker.serve.utils.types import ModelServer


class Weights(InferenceSpec):
    """A linear model whose weights are a file in the model folder."""

    def load(self, model_dir: str) -> list[int]:
        """The weights."""
        weights: list[int] = json.loads((Path(model_dir) / "weights.json").read_text())
        return weights

    def invoke(self, input_object: list[list[int]], model: list[int]) -> list[int]:
        """The weighted sum of each row."""
        return [sum(a * b for a, b in zip(row, model, strict=True)) for row in input_object]


unique_id = str(uuid.uuid4())[:8]
model_path = Path(tempfile.mkdtemp())
(model_path / "weights.json").write_text("[1, 10, 100]")
image_uri = image_uris.retrieve(
    "pytorch",
    region="us-east-1",
    version="2.3.0",
    py_version="py311",
    instance_type="ml.m5.xlarge",
    image_scope="inference",
)
model_builder = ModelBuilder(
    image_uri=image_uri,
    inference_spec=Weights(),
    model_path=str(model_path),
    model_server=ModelServer.TORCHSERVE,
    schema_builder=SchemaBuilder([[1, 2, 3]], [321]),
    dependencies={"auto": False},  # else it starts an interpreter without a region
    compute=Compute(instance_type="ml.m5.xlarge", instance_count=1),
)
core_model = model_builder.build(model_name=f"spec-model-{unique_id}")
core_endpoint = model_builder.deploy(endpoint_name=f"spec-{unique_id}")
result = core_endpoint.invoke(
    body=json.dumps([[1, 2, 3], [4, 5, 6]]), content_type="application/json"
)
answer = json.loads(result.body.read().decode())
core_endpoint_config = EndpointConfig.get(endpoint_config_name=core_endpoint.endpoint_name)
core_model.delete()
core_endpoint.delete()
core_endpoint_config.delete()
print()  # in case the SDK's log has not ended its line
print(json.dumps({"image": core_model.primary_container.image, "answer": answer}))
