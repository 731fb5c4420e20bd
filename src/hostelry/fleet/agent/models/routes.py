"""Client of the multi-model routes of a container.

Source: SageMaker's contract for multi-model containers. `memoryBytes` in the description of a
model is ours: what its process takes.
"""

from pathlib import Path

import msgspec

from hostelry.base.json import decode
from hostelry.fleet.agent.model_server import Answer, ModelServer

UNLOAD_TIMEOUT_S = 60.0
DESCRIBE_TIMEOUT_S = 10.0


class _Described(msgspec.Struct):
    """The part of GET /models/ID that is read."""

    memory_bytes: int | None = msgspec.field(default=None, name="memoryBytes")


class HttpModelRoutes:
    """Implements `ModelRoutes` over a copy's HTTP."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server

    async def load(self, model_id: str, folder: Path, timeout_s: float) -> Answer:
        """POST /models; a model that is loaded already (409) is a success."""
        answer, _ = await self._server.call(
            "POST",
            "/models",
            timeout_s=timeout_s,
            headers={"Content-Type": "application/json"},
            body=msgspec.json.encode({"model_name": model_id, "url": str(folder)}),
        )
        return Answer(status=409) if answer.status == 409 else answer

    async def unload(self, model_id: str) -> Answer:
        """DELETE /models/ID; succeeds if it is not there."""
        answer, _ = await self._server.call(
            "DELETE", f"/models/{model_id}", timeout_s=UNLOAD_TIMEOUT_S
        )
        return Answer(status=404) if answer.status == 404 else answer

    async def memory_bytes(self, model_id: str) -> int | None:
        """`memoryBytes` of GET /models/ID; None where there is none."""
        answer, body = await self._server.call(
            "GET", f"/models/{model_id}", timeout_s=DESCRIBE_TIMEOUT_S
        )
        if answer.fault is not None:
            return None
        try:
            found = decode(body, _Described).memory_bytes
        except msgspec.DecodeError:
            return None
        return found if found is not None and found > 0 else None
