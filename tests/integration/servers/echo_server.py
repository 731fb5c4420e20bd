"""A tiny model server for tests: /ping, an echo at /invocations, adapters, and faults on demand.

It uses only the standard library. ECHO_MODE chooses its behaviour: ``ok``, ``exit`` (at the start),
``never`` (never healthy), ``refuse`` (invocations answer 400), ``fail`` (all but the probe answer
500), ``once`` (exits at every start but the first), ``fork`` (leaves a child that ignores SIGTERM).
An invocation of ``version`` answers ECHO_VERSION. ECHO_ADAPTER names an adapter that is loaded from
the start. ``GET /eat?mb=N`` allocates N MB, ``GET /feed?mb=N`` has a child do so. ``GET /drip?s=N``
and an invocation of ``drip N`` stream for N seconds. An invocation of ``sleep N`` is answered after
N seconds, ``print TEXT`` prints the text. SIGTERM ends everything at once.
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

MODE = os.environ.get("ECHO_MODE", "ok")
ADAPTERS: dict[str, str] = {}
if OWN := os.environ.get("ECHO_ADAPTER"):
    ADAPTERS[OWN] = f"/opt/ml/model/adapters/{OWN}"


HELD: list[bytearray] = []
EATER = "import sys, time; held = bytearray(b'x' * (int(sys.argv[1]) << 20)); time.sleep(600)"


def hold(megabytes: int, *, in_child: bool) -> None:
    """Allocate resident memory, in steps that a test can observe."""
    if in_child:
        subprocess.Popen([sys.executable, "-c", EATER, str(megabytes)])
        return
    for _ in range(0, megabytes, 16):
        HELD.append(bytearray(b"x" * (16 << 20)))
        time.sleep(0.02)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/ping":
            self.answer(503 if MODE == "never" else 200, b"")
        elif self.path == "/environment":
            self.answer(200, json.dumps(dict(os.environ)).encode())
        elif self.path == "/model":
            model = Path(os.environ["HOSTELRY_MODEL_DIR"])
            files = {str(it.relative_to(model)): it.stat().st_size for it in model.rglob("*")}
            self.answer(200, json.dumps(files).encode())
        elif self.path.startswith(("/eat?mb=", "/feed?mb=")):
            path, _, megabytes = self.path.partition("?mb=")
            hold(int(megabytes), in_child=path == "/feed")
            self.answer(200, b"{}")
        elif self.path.startswith("/drip?s="):
            self.drip(float(self.path.removeprefix("/drip?s=")))
        elif self.path == "/adapters":
            self.answer(200, json.dumps(ADAPTERS).encode())
        elif (name := unquote(self.path.removeprefix("/adapters/"))) in ADAPTERS:
            self.answer(200, json.dumps({"name": name, "src": ADAPTERS[name]}).encode())
        else:
            self.answer(404, b"no such path")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        url = urlsplit(self.path)
        if url.path == "/invocations":
            self.invoke(body)
        elif url.path == "/adapters":
            query = parse_qs(url.query)
            self.register(query["name"][0], query["src"][0])
        else:
            self.answer(404, b"no such path")

    def do_DELETE(self) -> None:
        name = unquote(self.path.removeprefix("/adapters/"))
        self.answer(200 if ADAPTERS.pop(name, None) else 404, b"")

    def drip(self, seconds: float) -> None:
        """Stream for `seconds`."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(int(seconds * 5)):
            self.wfile.write(b"5\r\ndrop\n\r\n")
            time.sleep(0.2)
        self.wfile.write(b"4\r\nend\n\r\n0\r\n\r\n")
        self.close_connection = True

    def invoke(self, body: bytes) -> None:
        adapter = self.headers.get("X-Amzn-SageMaker-Adapter-Identifier")
        if MODE == "refuse":
            self.answer(400, b"this model wants something else")
        elif MODE == "fail" and b"probe" not in body:
            self.answer(500, b"this model is broken")
        elif adapter is not None and adapter not in ADAPTERS:
            self.answer(424, f"adapter {adapter} is not registered".encode())
        elif body == b"version":
            self.answer(200, os.environ.get("ECHO_VERSION", "").encode())
        elif body.startswith(b"drip "):
            self.drip(float(body.removeprefix(b"drip ")))
        else:
            if body.startswith(b"sleep "):
                time.sleep(float(body.removeprefix(b"sleep ")))
            elif body.startswith(b"print "):
                print(body.removeprefix(b"print ").decode(), flush=True)
            self.answer(200, body)

    def register(self, name: str, source: str) -> None:
        if not (Path(source) / "adapter_config.json").exists():
            self.answer(424, b"no adapter_config.json")
        elif name in ADAPTERS:
            self.answer(409, b"already registered")
        else:
            ADAPTERS[name] = source
            self.answer(200, b'{"status": "registered"}')

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


def main() -> None:
    port = int(os.environ["SAGEMAKER_BIND_TO_PORT"])
    print(f"echo server, mode {MODE}, port {port}", flush=True)
    if MODE == "exit":
        sys.exit("this server does not want to start")
    if MODE == "fork":
        stubborn = "import signal as s, time; s.signal(s.SIGTERM, s.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", stubborn])
        Path("child.pid").write_text(str(child.pid))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
