"""A model server for drills: the JSON body says how long to take and how many chunks to send.

{"wait_s": 0.2}                      answers after a while
{"chunks": 50, "chunk_wait_s": 0.1}  streams numbered lines; the custom attributes are its pid
"""

import json
import os
import signal
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.whole(b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if chunks := asked.get("chunks"):
            self.stream(chunks, asked["chunk_wait_s"])
            return
        time.sleep(asked.get("wait_s", 0))
        self.whole(json.dumps({"pid": os.getpid()}).encode())

    def whole(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, chunks: int, wait_s: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("X-Amzn-SageMaker-Custom-Attributes", str(os.getpid()))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(chunks):
            line = f"{number}\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
            time.sleep(wait_s)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        del format, args


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Handler)
    print("drill server is up", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
