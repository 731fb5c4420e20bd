"""A container of a model with several: records the input, and has the faults named in the body.

It uses only the standard library. A body is JSON. `trail` has the input of each container, and
`faults` has by STEP_NAME: `status N`, `hang`, `slow N` (answers after N s), `die`, `large N` (an
answer of N bytes), `cut` (the answer breaks off) or `stream` (an answer in chunks, then the input).
"""

import json
import os
import signal
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME = os.environ["STEP_NAME"]
SEEN = (
    "Content-Type",
    "Accept",
    "X-Amzn-SageMaker-Custom-Attributes",
    "X-Amzn-SageMaker-Forwarded-Api",
)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        self.answer(200, b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        print("asked", asked.get("mark", ""), flush=True)
        sent = {name: self.headers[name] for name in SEEN if name in self.headers}
        asked.setdefault("trail", []).append({"name": NAME, **sent})
        fault, _, number = asked.get("faults", {}).get(NAME, "").partition(" ")
        body = json.dumps(asked).encode()
        if fault == "status":
            self.answer(int(number), f"{NAME} does not want this".encode())
        elif fault == "hang":
            time.sleep(600)
        elif fault == "slow":
            time.sleep(float(number))
            self.answer(200, body)
        elif fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "large":
            self.answer(200, b" " * int(number) + body)
        elif fault == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.close_connection = True
        elif fault == "stream":
            self.stream(b"first", b"second", body)
        else:
            self.answer(200, body)

    def stream(self, *chunks: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", f"application/x-{NAME}")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in (*chunks, b""):
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            time.sleep(0.1)

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"application/x-{NAME}")
        self.send_header("X-Amzn-SageMaker-Custom-Attributes", f"from-{NAME}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


def main() -> None:
    port = int(os.environ["SAGEMAKER_BIND_TO_PORT"])
    print(f"container {NAME} at port {port}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
