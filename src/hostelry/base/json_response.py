"""JSON responses of control's internal routes."""

from typing import Any

import msgspec
from starlette.responses import Response


class JsonResponse(Response):
    """Response with a value that msgspec can encode."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The value as JSON."""
        return msgspec.json.encode(content)
