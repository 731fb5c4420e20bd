"""A multi-model server that follows AWS's contract, as a user's own image might.

It uses only the standard library, and one process for all models. A model is `model.json` at the
url of its load. It has `factor`. `refused`, `too_large`, `hangs` or `dies` are faults of its load,
`drops` (the first connection) or `stays` (no answer) of its unload. It answers 507 to a load beyond
MODELS_MAX models, 409 to a second load, 404 for a missing model. It lists two models per page, its
own model first. An invocation multiplies a number, or has a fault: `die`, `hang`, `forget` (all
models), `refuse STATUS`, `alone` (507 while another model is loaded), `calls` (lists requests),
`headers` (of the request). Answers contain the request's custom attributes.
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

PAGE = 2
MAX = int(os.environ.get("MODELS_MAX", "3"))
OWN = "of-the-image"
FACTORS: dict[str, float] = {OWN: 1.0}
URLS = {OWN: "/opt/own"}
UNLOADS: dict[str, str] = {}
CALLS: list[list[str]] = []
LOCK = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        name = parts.path.removeprefix("/models").strip("/")
        if parts.path == "/ping":
            self.answer(200, {})
        elif parts.path == "/models":
            self.listed(int(parse_qs(parts.query).get("next_page_token", ["0"])[0]))
        elif name in FACTORS:
            self.answer(200, {"modelName": name, "modelUrl": URLS[name]})
        else:
            self.answer(404, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/models":
            self.note("load")
            asked = json.loads(body)
            self.load(asked["model_name"], asked["url"])
        elif self.path.endswith("/invoke"):
            self.invoke(self.path.split("/")[2], body.decode())
        else:
            self.answer(404, {})

    def do_DELETE(self) -> None:
        self.note("unload")
        name = self.path.split("/")[2]
        fault = UNLOADS.get(name)
        if fault == "stays":
            time.sleep(600)
        if fault == "drops":
            del UNLOADS[name]
            self.close_connection = True
            return
        with LOCK:
            found = FACTORS.pop(name, None)
        self.answer(200 if found is not None else 404, {})

    def listed(self, first: int) -> None:
        with LOCK:
            names = sorted(FACTORS, key=lambda it: (it != OWN, it))
        found = {"models": [{"modelName": it} for it in names[first : first + PAGE]]}
        more = {"nextPageToken": str(first + PAGE)} if names[first + PAGE :] else {}
        self.answer(200, {**found, **more})

    def load(self, name: str, url: str) -> None:
        model = json.loads((Path(url) / "model.json").read_bytes())
        if model.get("dies"):
            os._exit(5)
        if model.get("hangs"):
            time.sleep(600)
        if model.get("refused"):
            self.answer(500, {"message": model["refused"]})
            return
        with LOCK:
            if name in FACTORS:
                status = 409
            elif len(FACTORS) - 1 >= MAX or model.get("too_large"):
                status = 507
            else:
                status, FACTORS[name], URLS[name] = 200, model["factor"], url
                UNLOADS[name] = model.get("unload", "")
        self.answer(status, {})

    def invoke(self, name: str, asked: str) -> None:
        if name not in FACTORS:
            self.answer(404, {"message": "not loaded"})
        elif asked == "die":
            os._exit(6)
        elif asked == "hang":
            time.sleep(600)
        elif asked == "forget":
            with LOCK:
                FACTORS.clear()
            self.answer(404, {"message": "not loaded"})
        elif asked.startswith("refuse "):
            self.answer(int(asked.split()[1]), {"message": "by the model"})
        elif asked == "alone" and len(FACTORS) > 2:
            self.answer(507, {"message": "no memory for the request"})
        elif asked in ("alone", "calls", "environment", "headers"):
            self.answer(200, self.report(name, asked))
        else:
            self.answer(200, float(asked) * FACTORS[name])

    def report(self, name: str, asked: str) -> object:
        reports: dict[str, object] = {
            "alone": len(FACTORS),
            "calls": {"calls": CALLS, "own": OWN in FACTORS, "url": URLS[name]},
            "environment": dict(os.environ),
            "headers": dict(self.headers),
        }
        return reports[asked]

    def note(self, call: str) -> None:
        CALLS.append([call, self.headers.get("X-Amzn-SageMaker-Target-Model", "")])

    def answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if attributes := self.headers.get("X-Amzn-SageMaker-Custom-Attributes"):
            self.send_header("X-Amzn-SageMaker-Custom-Attributes", attributes)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        print(format % args, file=sys.stderr, flush=True)


if __name__ == "__main__":
    port = int(os.environ.get("SAGEMAKER_BIND_TO_PORT", "8080"))
    host = os.environ.get("SAGEMAKER_BIND_HOST", "0.0.0.0")
    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    # The first process of a container ends on SIGTERM only if it has a handler.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server.serve_forever()
