"""An echo model on Ray Serve: ``ray_echo.py PORT WORKERS``; runs in Ray's own environment."""

import sys
import time
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

PORT, WORKERS = int(sys.argv[1]), int(sys.argv[2])


# By default a replica takes five requests at a time, which would make the others wait.
@serve.deployment(
    num_replicas=WORKERS, max_ongoing_requests=256, ray_actor_options={"num_cpus": 0.1}
)
class Echo:
    """Gives the numbers back."""

    async def __call__(self, request: Request) -> dict[str, Any]:
        """One request."""
        asked = await request.json()
        return {"data": asked["data"]}


ray.init(include_dashboard=False, configure_logging=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
serve.run(Echo.bind(), route_prefix="/")
while True:
    time.sleep(3600)
