"""A framework's model server for tests: runs code in the model, as AWS's containers do.

The code is SAGEMAKER_PROGRAM in the folder SAGEMAKER_SUBMIT_DIRECTORY: `model_fn(folder)`, and
optionally `input_fn(body, content_type)`, `predict_fn(data, model)` and
`output_fn(prediction, accept)`.
A program has /opt/ml/model of an image in another folder, so that path is replaced in the code, and
so is /lib, into which the code of SDK v3 copies libraries.
"""

import json
import os
import sys
import tempfile
import types
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODEL = Path(os.environ["HOSTELRY_MODEL_DIR"])
JSON = "application/json"


def load() -> types.ModuleType:
    """The model's module. Missing functions get a container's defaults."""
    folder = os.environ.get("SAGEMAKER_SUBMIT_DIRECTORY") or "/opt/ml/model/code"
    program = os.environ.get("SAGEMAKER_PROGRAM") or "inference.py"
    path = Path(folder.replace("/opt/ml/model", str(MODEL))) / program
    module = types.ModuleType("inference")
    module.__file__ = str(path)
    module.__dict__.update(
        input_fn=lambda body, content_type: json.loads(body),
        predict_fn=lambda data, model: model(data),
        output_fn=lambda prediction, accept: json.dumps(prediction),
    )
    sys.path.insert(0, str(path.parent))
    source = path.read_text().replace("/opt/ml/model", str(MODEL))
    source = source.replace('"/lib"', repr(tempfile.mkdtemp()))
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


CODE = load()
LOADED = CODE.model_fn(str(MODEL))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(200, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        accept = self.headers.get("Accept") or JSON
        try:
            data = CODE.input_fn(body, self.headers.get("Content-Type") or JSON)
            answer = CODE.output_fn(CODE.predict_fn(data, LOADED), accept)
        except (ValueError, TypeError, LookupError) as error:
            self.answer(500, str(error).encode())
            return
        self.answer(200, answer if isinstance(answer, bytes) else answer.encode())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", JSON)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


if __name__ == "__main__":
    port = int(os.environ["SAGEMAKER_BIND_TO_PORT"])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
