"""Ray Serve's model multiplexing: ``ray_models.py PORT MODELS BUCKET``, in Ray's own environment.

As in Ray's manual, `get_model` downloads and loads the model that a request's header names. A
replica holds at most MODELS models, and evicts the least recently used one.
"""

import asyncio
import io
import sys
import tarfile
import time
from typing import Any

import boto3
import joblib
import numpy
import ray
from botocore.config import Config
from ray import serve
from starlette.requests import Request

PORT, MODELS, BUCKET = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


class Loaded:
    """A model in memory, and whether it has answered."""

    def __init__(self, archive: bytes) -> None:
        with tarfile.open(fileobj=io.BytesIO(archive)) as members:
            content = members.extractfile("model.joblib")
            assert content is not None  # each archive has it
            self.model = joblib.load(io.BytesIO(content.read()))
        self.has_answered = False


# By default a replica takes five requests at a time, and the others would wait.
@serve.deployment(num_replicas=1, max_ongoing_requests=256, ray_actor_options={"num_cpus": 0.1})
class Models:
    """Answers with the named model's prediction, and whether the model was loaded."""

    def __init__(self) -> None:
        self._s3 = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))

    @serve.multiplexed(max_num_models_per_replica=MODELS)
    async def get_model(self, name: str) -> Loaded:
        """The model, downloaded and loaded."""
        return await asyncio.to_thread(self._fetched, name)

    async def __call__(self, request: Request) -> dict[str, Any]:
        """Answer one request."""
        rows = await request.json()
        loaded = await self.get_model(serve.get_multiplexed_model_id())
        hit, loaded.has_answered = loaded.has_answered, True
        return {"predicted": loaded.model.predict(numpy.array(rows)).tolist(), "hit": hit}

    def _fetched(self, name: str) -> Loaded:
        answer = self._s3.get_object(Bucket=BUCKET, Key=f"models/{name}")
        return Loaded(answer["Body"].read())


ray.init(include_dashboard=False, configure_logging=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
serve.run(Models.bind(), route_prefix="/")
print("ready", flush=True)
while True:
    time.sleep(3600)
