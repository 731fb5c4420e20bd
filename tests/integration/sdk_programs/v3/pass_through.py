"""An unchanged image and S3 prefix as an inference component, from build to delete.

Arguments: the s3:// prefixes of two models.
"""

import json
import sys
import uuid

import boto3
from sagemaker.core import image_uris
from sagemaker.core.inference_config import ResourceRequirements
from sagemaker.core.resources import EndpointConfig, InferenceComponent
from sagemaker.core.shapes import InferenceComponentRuntimeConfig
from sagemaker.core.training.configs import Compute
from sagemaker.serve.model_builder import ModelBuilder

prefix, other_prefix = sys.argv[1:]
unique_id = str(uuid.uuid4())[:8]
REQUEST = {
    "inputs": "What are falcons?",
    "parameters": {"max_new_tokens": 12, "do_sample": False},
}
image = image_uris.retrieve("djl-lmi", region="us-east-1", version="0.30.0")


def builder_of(uri: str) -> ModelBuilder:
    """A builder that passes the image and the prefix through."""
    return ModelBuilder(
        image_uri=image,
        s3_model_data_url={
            "S3DataSource": {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}
        },
        env_vars={"OPTION_DTYPE": "bf16"},
        compute=Compute(instance_type="ml.g5.12xlarge", instance_count=1),
    )


def stream() -> list[str]:
    """The parts of a streamed answer."""
    response = boto3.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName=endpoint.endpoint_name,
        InferenceComponentName=component.inference_component_name,
        Body=json.dumps({**REQUEST, "stream": True}),
        ContentType="application/json",
    )
    return [event["PayloadPart"]["Bytes"].decode() for event in response["Body"]]


def invoke() -> str:
    """The text of an answer."""
    result = endpoint.invoke(
        body=json.dumps(REQUEST),
        content_type="application/json",
        inference_component_name=component.inference_component_name,
    )
    text: str = json.loads(result.body.read().decode())["generated_text"]
    return text


builder = builder_of(prefix)
model = builder.build(model_name=f"through-{unique_id}")
endpoint = builder.deploy(
    endpoint_name=f"through-{unique_id}",
    inference_component_name=f"through-{unique_id}",
    inference_config=ResourceRequirements(
        requests={"num_accelerators": 1, "memory": 1024, "copies": 1}
    ),
)
component = InferenceComponent.get(f"through-{unique_id}")
component.wait_for_status("InService")
first, pieces = invoke(), stream()
component.update_runtime_configs(
    desired_runtime_config=InferenceComponentRuntimeConfig(copy_count=2)
)
component.wait_for_status("InService")
copies = component.refresh().runtime_config.current_copy_count

other_model = builder_of(other_prefix).build(model_name=f"through-second-{unique_id}")
specification = component.specification
component.update(
    specification={
        "model_name": other_model.model_name,
        "compute_resource_requirements": specification.compute_resource_requirements,
    }
)
component.wait_for_status("InService")
second = invoke()

component.delete()
component.wait_for_delete()
config = EndpointConfig.get(endpoint_config_name=endpoint.endpoint_config_name)
endpoint.delete()
endpoint.wait_for_delete()
for made in (config, model, other_model):
    made.delete()
print()  # in case the SDK's log has not ended its line
print(json.dumps({"first": first, "pieces": pieces, "copies": copies, "second": second}))
