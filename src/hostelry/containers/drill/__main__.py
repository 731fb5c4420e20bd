"""A model server for drills, whose environment and requests decide how it behaves.

Run as ``python -m hostelry.containers.drill``.

It uses only the standard library, so that it starts at once. Environment:

    DRILL_ANSWER=text       is in each answer, to distinguish versions
    DRILL_START_S=2         waits this time before it listens
    DRILL_PLACES=2          works on so few requests at once, and reports it in its answers
    DRILL_EXIT_AFTER_S=0    prints some lines and exits with code 3, this time after its start

A request's JSON body:

    {"wait_s": 0.2}                      answers after this time
    {"chunks": 50, "chunk_wait_s": 0.1}  streams numbered lines, with its pid as custom attributes
    {"take_bytes": 1000000}              takes memory and keeps it
    {"fork": 100}                        starts sleeping processes, and answers their number
    {"write_bytes": 1000000}             writes a file in its working folder and keeps it
    {"hang": true}                       stops itself (SIGSTOP) and answers no more
    {"digest": "text"}                   answers the text's SHA-256 in hex, a space, the text
    {"refuse": "reason"}                 answers 400 with the reason
    {"fail_if": "text"}                  answers 500 if DRILL_ANSWER is this text
"""

import contextlib
import hashlib
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hostelry.base.guards import COPY_KEY_HEADER, MISSING_COPY_KEY, has_key, take_key

LAST_WORDS = 30
TAKEN_AT_ONCE_BYTES = 4 * 1024 * 1024
SLEEPER = ("/bin/sleep", "600")
WRITTEN = "drill-ballast"
PAGE_BYTES = 4096


class DrillHandler(BaseHTTPRequestHandler):
    """One connection to the server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    kept: list[bytearray] = []  # noqa: RUF012 - the memory taken by requests, shared by all
    key: str | None = None  # this copy's key, once `main` has read it
    num_places = ""
    places: threading.Semaphore | None = None

    def parse_request(self) -> bool:
        """Read the head. Answers 403 to a request without the copy's key."""
        if not super().parse_request():
            return False
        if self.key is None or has_key(self.key, self.headers.get_all(COPY_KEY_HEADER, [])):
            return True
        self.close_connection = True
        self.send_error(403, explain=MISSING_COPY_KEY)
        return False

    def do_GET(self) -> None:
        """Answer /ping."""
        self._answer(b"")

    def do_POST(self) -> None:
        """Follow the body's instructions."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if chunks := asked.get("chunks"):
            self._stream(chunks, asked.get("chunk_wait_s", 0.0))
            return
        if reason := asked.get("refuse"):
            self._answer(reason.encode(), "text/plain", 400)
            return
        if text := asked.get("digest"):
            self._answer(digest_line(text), "text/plain")
            return
        if (version := asked.get("fail_if")) and version == os.environ.get("DRILL_ANSWER"):
            self._answer(b"this version is broken", "text/plain", 500)
            return
        with self.places or contextlib.nullcontext():
            time.sleep(asked.get("wait_s", 0.0))
        self._take(asked.get("take_bytes", 0))
        self._write(asked.get("write_bytes", 0))
        if asked.get("hang"):
            signal.raise_signal(signal.SIGSTOP)  # also stops this thread, before the next line
        answer: dict[str, Any] = {"pid": os.getpid(), "answer": os.environ.get("DRILL_ANSWER", "")}
        answer["forked"] = self._fork(asked.get("fork", 0))
        self._answer(json.dumps(answer).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""
        del format, args

    def _take(self, num_bytes: int) -> None:
        """Take memory piece by piece and write to each page, as a leak would."""
        while num_bytes > 0:
            piece = bytearray(min(num_bytes, TAKEN_AT_ONCE_BYTES))
            piece[::PAGE_BYTES] = b"x" * len(piece[::PAGE_BYTES])
            self.kept.append(piece)
            num_bytes -= len(piece)

    def _write(self, num_bytes: int) -> None:
        """Write a file piece by piece. It is removed with the copy's folder."""
        if num_bytes <= 0:
            return
        with open(WRITTEN, "ab", buffering=0) as file:
            while num_bytes > 0:
                num_bytes -= file.write(bytes(min(num_bytes, TAKEN_AT_ONCE_BYTES)))

    def _fork(self, num_processes: int) -> int:
        """Start at most `num_processes` processes, and return the number that started."""
        for number in range(num_processes):
            try:
                os.posix_spawn(SLEEPER[0], SLEEPER, os.environ)
            except OSError:
                return number
        return num_processes

    def _answer(
        self, body: bytes, content_type: str = "application/json", status: int = 200
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if self.num_places:
            self.send_header("X-Hostelry-Places", self.num_places)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, chunks: int, wait_s: float) -> None:
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


class DrillServer(ThreadingHTTPServer):
    """HTTP server with a thread for each connection and a long accept queue."""

    daemon_threads = True
    request_queue_size = 256


def digest_line(text: str) -> bytes:
    """Build the answer to ``digest``."""
    return f"{hashlib.sha256(text.encode()).hexdigest()} {text}".encode()


def crash() -> None:
    """Print some last lines and exit."""
    for number in range(1, LAST_WORDS + 1):
        print(f"drill: last words, line {number} of {LAST_WORDS}", flush=True)
    os._exit(3)


def main() -> None:
    """Serve until SIGTERM, or crash as the environment says."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    exit_after = os.environ.get("DRILL_EXIT_AFTER_S")
    if exit_after is not None:
        if float(exit_after) <= 0:
            crash()
        threading.Timer(float(exit_after), crash).start()
    time.sleep(float(os.environ.get("DRILL_START_S", "0")))
    port = int(os.environ["SAGEMAKER_BIND_TO_PORT"])
    DrillHandler.key = take_key(os.environ)
    if num_places := os.environ.get("DRILL_PLACES", ""):
        DrillHandler.num_places, DrillHandler.places = (
            num_places,
            threading.Semaphore(int(num_places)),
        )
    server = DrillServer(("127.0.0.1", port), DrillHandler)
    print("drill server is up", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
