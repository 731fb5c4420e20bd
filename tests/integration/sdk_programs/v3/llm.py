"""An LLM of the Hugging Face Hub with the SDK's ModelBuilder, from build to delete.

Arguments: the model server (DJL_SERVING, TGI or VLLM), the id and folder of a model and of another.
"""

import io
import json
import sys
import urllib.request
import uuid
from email.message import Message
from pathlib import Path
from urllib.error import URLError
from urllib.response import addinfourl

import boto3
from sagemaker.core.resources import Endpoint, EndpointConfig, Model
from sagemaker.core.shapes import ProductionVariant
from sagemaker.core.training.configs import Compute
from sagemaker.serve.builder.schema_builder import SchemaBuilder
from sagemaker.serve.model_builder import ModelBuilder
from sagemaker.serve.utils.types import ModelServer

server, model_id, folder, other_id, other_folder = sys.argv[1:]
FOLDERS = {model_id: Path(folder), other_id: Path(other_folder)}
unique_id = str(uuid.uuid4())[:8]
REQUEST = {
    "inputs": "What are falcons?",
    "parameters": {"max_new_tokens": 12, "do_sample": False},
}


class Answer(addinfourl):
    """An answer of the hub."""

    msg = "OK"


class Hub(urllib.request.BaseHandler):
    """Replaces huggingface.co, from which the SDK reads a model's config.json during build."""

    handler_order = 100  # before urllib's own handlers

    def https_open(self, request: urllib.request.Request) -> Answer:
        """A file of FOLDERS, for https://huggingface.co/ID/raw/main/FILE."""
        for each, there in FOLDERS.items():
            prefix = f"https://huggingface.co/{each}/raw/main/"
            if request.full_url.startswith(prefix):
                content = (there / request.full_url.removeprefix(prefix)).read_bytes()
                return Answer(io.BytesIO(content), Message(), request.full_url, 200)
        raise URLError(f"{request.full_url} is not of this hub")


def build(model: str, name: str) -> tuple[ModelBuilder, Model]:
    """The builder of a hub model, and the result of its build."""
    builder = ModelBuilder(
        model=model,
        model_server=ModelServer[server],
        schema_builder=SchemaBuilder(
            {"inputs": "What are falcons?", "parameters": {"max_new_tokens": 32}},
            [{"generated_text": "Falcons are small to medium-sized birds of prey."}],
        ),
        compute=Compute(instance_type="ml.g5.xlarge", instance_count=1),
    )
    return builder, builder.build(model_name=f"{name}-{unique_id}")


def invoke(endpoint: Endpoint) -> str:
    """The text of an answer. TGI's answer is a list."""
    result = endpoint.invoke(body=json.dumps(REQUEST), content_type="application/json")
    answer = json.loads(result.body.read().decode())
    text: str = (answer[0] if isinstance(answer, list) else answer)["generated_text"]
    return text


def stream(endpoint: Endpoint) -> list[str]:
    """The parts of a streamed answer, over boto3, because the SDK's method cannot read a stream."""
    response = boto3.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName=endpoint.endpoint_name,
        Body=json.dumps({**REQUEST, "stream": True}),
        ContentType="application/json",
    )
    return [event["PayloadPart"]["Bytes"].decode() for event in response["Body"]]


urllib.request.install_opener(urllib.request.build_opener(Hub()))
builder, model = build(model_id, f"{server.lower().replace('_', '-')}-first")
endpoint = builder.deploy(endpoint_name=f"llm-{unique_id}", initial_instance_count=1)
first, pieces = invoke(endpoint), stream(endpoint)

# By resource classes, because deploy(update_endpoint=True) of this SDK raises a TypeError.
_, other_model = build(other_id, f"{server.lower().replace('_', '-')}-second")
other_config = EndpointConfig.create(
    endpoint_config_name=f"llm-second-{unique_id}",
    production_variants=[
        ProductionVariant(
            variant_name="AllTraffic",
            model_name=other_model.model_name,
            instance_type="ml.g5.xlarge",
            initial_instance_count=1,
        )
    ],
)
endpoint.endpoint_config_name = other_config.endpoint_config_name
endpoint.update()
endpoint.wait_for_status("InService")
second = invoke(endpoint)

config = EndpointConfig.get(endpoint_config_name=f"llm-{unique_id}")
endpoint.delete()
endpoint.wait_for_delete()
for made in (config, other_config, model, other_model):
    made.delete()
image = model.primary_container.image
print()  # in case the SDK's log has not ended its line
print(json.dumps({"image": image, "first": first, "pieces": pieces, "second": second}))
