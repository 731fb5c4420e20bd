"""An echo model on BentoML, for ``bentoml serve``. ECHO_WORKERS is the number of workers."""

import os

import bentoml


@bentoml.service(workers=int(os.environ["ECHO_WORKERS"]), traffic={"timeout": 60})
class Echo:
    """Returns the numbers of a request."""

    @bentoml.api
    async def echo(self, data: list[float]) -> dict[str, list[float]]:
        """Answer one request."""
        return {"data": data}
