"""A platform with small LLMs, and batches of requests by OpenAI's client."""

import io
import json
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
from tests.integration.drill import ENDPOINT, NO_RETRIES, create_endpoint, wait_ready
from tests.integration.lmi_rig import byte_model
from tests.integration.platform import Platform, until
from tests.pooled_models import tiny_encoder, write_modules, write_word_tokenizer

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi20.0.0-cu128"
INSTANCE_TYPES = {"cpu": "ml.m5.4xlarge", "cuda": "ml.g5.4xlarge"}
BASE, OUTSIDE, VECTORS = "base", "outside", "vectors"
MODELS = (BASE, f"{BASE}:es", f"{BASE}:fr", OUTSIDE)
CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
ENDED = ("completed", "failed", "expired", "cancelled")
Json = dict[str, Any]


def request(custom_id: str, body: Json, url: str = COMPLETIONS, **changes: Any) -> Json:
    """A line of an input file, as an object."""
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body, **changes}


def greedy(model: str, prompt: str, max_tokens: int = 8) -> Json:
    """A completion with exactly `max_tokens`, whose answer is always the same."""
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }


def written(lines: Sequence[Json]) -> bytes:
    """The bytes of an input file."""
    return b"".join(json.dumps(it).encode() + b"\n" for it in lines)


class Batches:
    """A platform whose base computes on `device`, and OpenAI's client for it."""

    def __init__(self, platform: Platform, device: str = "cpu") -> None:
        self.platform = platform
        self.device = device
        env = platform.env()
        self.client = openai.OpenAI(
            api_key=env["OPENAI_API_KEY"], base_url=env["OPENAI_BASE_URL"], max_retries=0
        )

    def upload(self, content: bytes, name: str = "requests.jsonl") -> str:
        """Upload a file, and return its id."""
        return self.client.files.create(file=(name, content), purpose="batch").id

    def create(self, lines: Sequence[Json] | bytes, endpoint: str = COMPLETIONS) -> str:
        """Create a batch of these requests, and return its id."""
        content = lines if isinstance(lines, bytes) else written(lines)
        made = self.client.batches.create(
            input_file_id=self.upload(content),
            endpoint=endpoint,  # type: ignore[arg-type]
            completion_window="24h",
        )
        return made.id

    def ended(self, id: str, within_s: float = 60.0) -> openai.types.Batch:
        """The batch after its end. The platform may be away meanwhile."""

        def over() -> openai.types.Batch | None:
            try:
                found = self.client.batches.retrieve(id)
            except (openai.InternalServerError, openai.APIConnectionError):
                return None
            return found if found.status in ENDED else None

        ended: openai.types.Batch = until(over, f"{id} ends", within_s)
        return ended

    def has_ended_more_than(self, id: str, count: int) -> bool:
        """Whether more than `number` requests have ended. False while the platform is away."""
        try:
            counts = self.client.batches.retrieve(id).request_counts
        except (openai.InternalServerError, openai.APIConnectionError):
            return False
        return counts is not None and counts.completed + counts.failed > count

    def results(self, file_id: str | None) -> dict[str, Json]:
        """The lines of a result file by custom_id. Asserts that each occurs once."""
        if file_id is None:
            return {}
        text = self.client.files.content(file_id).text
        lines = [json.loads(it) for it in text.splitlines()]
        twice = [id for id, n in Counter(it["custom_id"] for it in lines).items() if n > 1]
        assert not twice, f"twice in {file_id}: {twice}"
        return {it["custom_id"]: it for it in lines}


@contextmanager
def serving_llms(folder: Path, device: str = "cpu") -> Iterator[Batches]:
    """A base with two adapters in its archive and one adapter component, and an embedding model.

    With `device` cuda the base has the accelerator of its instance.
    """
    model = byte_model(folder)
    vectors = tiny_encoder(folder / "vectors", "Bert")
    write_modules(vectors, "mean_tokens", max_seq_length=32)
    write_word_tokenizer(vectors)
    with Platform(folder / "home") as platform:
        s3 = platform.boto3("s3")
        s3.create_bucket(Bucket="models")
        for name, path in ((BASE, model), (OUTSIDE, folder / "outside"), (VECTORS, vectors)):
            s3.put_object(Bucket="models", Key=f"{name}.tar.gz", Body=packed(path))
        create_endpoint(platform, INSTANCE_TYPES[device])
        options = {"OPTION_ENABLE_LORA": "true", "OPTION_DTYPE": "fp32"}
        create_llm(platform, BASE, options, accelerators=int(device == "cuda"))
        create_llm(platform, VECTORS, {"OPTION_DTYPE": "fp32"})
        wait_ready(platform, BASE, 1, 90)
        create_adapter(platform, OUTSIDE)
        wait_ready(platform, VECTORS, 1, 90)
        batches = Batches(platform, device)
        try:
            yield batches
        finally:
            batches.client.close()


def packed(folder: Path) -> bytes:
    """A folder as an archive."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.add(folder, arcname=".")
    return content.getvalue()


def create_llm(
    platform: Platform, name: str, options: dict[str, str], accelerators: int = 0
) -> None:
    """Request one copy of an LLM. Its archive has the component's name."""
    platform.boto3("sagemaker", retries=NO_RETRIES).create_inference_component(
        InferenceComponentName=name,
        EndpointName=ENDPOINT,
        VariantName="AllTraffic",
        Specification={
            "Container": {
                "Image": IMAGE,
                "ArtifactUrl": f"s3://models/{name}.tar.gz",
                "Environment": {"OPTION_POOL_BYTES": str(64 << 20), **options},
            },
            "ComputeResourceRequirements": {
                "MinMemoryRequiredInMb": 1024,
                "NumberOfCpuCoresRequired": 1,
                **({"NumberOfAcceleratorDevicesRequired": accelerators} if accelerators else {}),
            },
        },
        RuntimeConfig={"CopyCount": 1},
    )


def create_adapter(platform: Platform, name: str) -> None:
    """Create an adapter of the base as a separate component, and wait until it is in service."""
    sagemaker = platform.boto3("sagemaker", retries=NO_RETRIES)
    sagemaker.create_inference_component(
        InferenceComponentName=name,
        EndpointName=ENDPOINT,
        Specification={
            "BaseInferenceComponentName": BASE,
            "Container": {"ArtifactUrl": f"s3://models/{name}.tar.gz"},
        },
    )

    def in_service() -> bool:
        found = sagemaker.describe_inference_component(InferenceComponentName=name)
        assert found["InferenceComponentStatus"] != "Failed", found
        return bool(found["InferenceComponentStatus"] == "InService")

    until(in_service, f"{name} InService", 60)
