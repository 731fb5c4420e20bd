"""An echo model on BentoML, for ``bentoml serve``; ECHO_WORKERS says with how many workers."""

import os

import bentoml


@bentoml.service(workers=int(os.environ["ECHO_WORKERS"]), traffic={"timeout": 60})
class Echo:
    """Gives the numbers back."""

    @bentoml.api
    async def echo(self, data: list[float]) -> dict[str, list[float]]:
        """One request."""
        return {"data": data}
