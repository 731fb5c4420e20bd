"""Custom model server that counts characters: the two routes of the container contract."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Lengths(BaseHTTPRequestHandler):
    """GET /ping for health; POST /invocations returns the length of each text."""

    def do_GET(self) -> None:
        """Answer the health check."""
        self.answer(200, b"")

    def do_POST(self) -> None:
        """Answer one invocation; 400 for an invalid body, so that readiness can be probed."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            lengths = [len(text) for text in json.loads(body)["instances"]]
        except (ValueError, KeyError, TypeError) as error:
            fault = {"error": f"send an object with a list named instances: {error!r}"}
            self.answer(400, json.dumps(fault).encode())
        else:
            self.answer(200, json.dumps(lengths).encode())

    def answer(self, status: int, body: bytes) -> None:
        """Send one response."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    # In a container on all addresses and port 8080, as SageMaker requires; as a local process
    # on loopback, with a port for each copy.
    inside = os.environ.get("HOSTELRY_MODEL_DIR", "/opt/ml/model") == "/opt/ml/model"
    port = int(os.environ.get("SAGEMAKER_BIND_TO_PORT", "8080"))
    ThreadingHTTPServer(("0.0.0.0" if inside else "127.0.0.1", port), Lengths).serve_forever()
