"""An echo model on LitServe: ``litserve_echo.py PORT WORKERS``, in LitServe's own environment.

LitServe reads the names of the methods' parameters, `request` and `output` among them.
"""

import sys
from typing import Any

import litserve

PORT, WORKERS = int(sys.argv[1]), int(sys.argv[2])


class Echo(litserve.LitAPI):
    """Returns the numbers of a request."""

    def setup(self, device: str) -> None:
        """Do nothing, since the echo has no model."""

    def decode_request(self, request: dict[str, Any]) -> Any:
        """The numbers of a body."""
        return request["data"]

    def predict(self, x: Any) -> Any:
        """The same numbers."""
        return x

    def encode_response(self, output: Any) -> dict[str, Any]:
        """The body of the answer."""
        return {"data": output}


if __name__ == "__main__":
    server = litserve.LitServer(Echo(), accelerator="cpu", workers_per_device=WORKERS)
    server.run(
        host="127.0.0.1",
        port=PORT,
        num_api_servers=WORKERS,
        log_level="warning",
        generate_client_file=False,
    )
