"""A receiver of OTLP over HTTP, in this process."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class OtlpReceiver:
    """Receives OTLP at `address`. Answers with `status`, and keeps messages in `received`.

    `request` and `answer` are the protocol's message types at `path`.
    """

    def __init__(self, path: str, request: Any, answer: Any) -> None:
        self.status = 200
        self.received: list[Any] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.status == 200:
                    assert self.path == path
                    receiver.received.append(request.FromString(body))
                self.send_response(receiver.status)
                content = answer().SerializeToString()
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop receiving."""
        self.server.shutdown()
        self.server.server_close()
