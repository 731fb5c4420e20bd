"""A Hugging Face hub with one model, on loopback, with the routes that the hub's client uses."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """The hub at `url`. `tokens` has the authorization headers of requests."""

    def __init__(self, model_id: str, folder: Path, token: str | None = None) -> None:
        """Serve the files in `folder` to requests with `token`."""
        self.tokens: list[str | None] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                shown, path = self.headers.get("Authorization"), urlsplit(self.path).path
                hub.tokens.append(shown)
                if token is not None and shown != f"Bearer {token}":
                    self._send(401, b"", {"X-Error-Code": "GatedRepo"})
                elif path.startswith(f"/api/models/{model_id}"):
                    self._send(200, hub.info(model_id, folder), {})
                elif path.startswith(f"/{model_id}/resolve/{COMMIT}/"):
                    body = (folder / path.partition(f"{COMMIT}/")[2]).read_bytes()
                    etag = hashlib.sha256(body).hexdigest()
                    self._send(200, body, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})
                else:
                    self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

            do_HEAD = do_GET

            def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @staticmethod
    def info(model_id: str, folder: Path) -> bytes:
        """The answer of /api/models/ID."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        siblings = [
            {"rfilename": str(path.relative_to(folder)), "size": path.stat().st_size}
            for path in files
        ]
        return json.dumps({"id": model_id, "sha": COMMIT, "siblings": siblings}).encode()


@contextmanager
def fake_hub(model_id: str, folder: Path, token: str | None = None) -> Iterator[FakeHub]:
    """A running hub."""
    hub = FakeHub(model_id, folder, token)
    with served(hub.server):
        yield hub


@contextmanager
def served(server: ThreadingHTTPServer) -> Iterator[None]:
    """Answer the server's requests in a thread during the block."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
