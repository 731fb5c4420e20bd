"""An HTTP server with a list of answers. It keeps the received requests."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from hostelry.base.http import HttpRequest


class Seen(list[HttpRequest]):
    """The received requests of a server."""


@contextmanager
def scripted_server(*answers: tuple[int, bytes]) -> Iterator[tuple[str, Seen]]:
    """A server that gives each of `answers` in turn, and then repeats the last answer."""
    seen, left = Seen(), list(answers)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            path, _, query = self.path.partition("?")
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            seen.append(HttpRequest(self.command, path, query, headers, body))
            status, text = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        do_GET = do_POST = do_HEAD = do_PUT = answer

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}", seen
        finally:
            listening.shutdown()
            thread.join()
