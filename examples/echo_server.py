"""A model server in plain Python, which answers with its name and the request.

It implements the container contract: `GET /ping`, `POST /invocations`, the port in the environment.
`examples/shared_fleet.py` runs 18 of it in place of models of many sizes. With `--image-rule` it
prints the lines of images.toml (in the home folder) that run it for the image shared-fleet-echo.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RULE = """
[[image]]
pattern = "*/shared-fleet-echo:*"
command = {command}
[image.probe]
content_type = "application/json"
body = '{{}}'
"""
NAME = os.environ.get("ECHO_NAME", "echo")


class Echo(BaseHTTPRequestHandler):
    """Handler of health checks and echoes."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """`GET /ping`: it can serve as soon as it listens."""
        self._answer({"ready": True})

    def do_POST(self) -> None:
        """`POST /invocations`."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        self._answer({"name": NAME, "devices": devices, "sent": body.decode()})

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""

    def _answer(self, answer: dict[str, object]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve, or print the rule."""
    if "--image-rule" in sys.argv:
        print(RULE.format(command=json.dumps([sys.executable, os.path.abspath(__file__)])))
        return
    port = int(os.environ["SAGEMAKER_BIND_TO_PORT"])
    ThreadingHTTPServer(("127.0.0.1", port), Echo).serve_forever()


if __name__ == "__main__":
    main()
