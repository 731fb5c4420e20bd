"""An echo model on Ray Serve: ``ray_echo.py PORT WORKERS``, run in Ray's own environment."""

import sys
import time
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

PORT, WORKERS = int(sys.argv[1]), int(sys.argv[2])


# By default a replica takes five requests at a time, and the others would wait.
@serve.deployment(
    num_replicas=WORKERS, max_ongoing_requests=256, ray_actor_options={"num_cpus": 0.1}
)
class Echo:
    """Returns the numbers of a request."""

    async def __call__(self, request: Request) -> dict[str, Any]:
        """Answer one request."""
        asked = await request.json()
        return {"data": asked["data"]}


ray.init(include_dashboard=False, configure_logging=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
serve.run(Echo.bind(), route_prefix="/")
while True:
    time.sleep(3600)
