"""A model server that keeps sessions in its memory, by the contract of LMI's stateful sessions.

``session_server.py PORT [LIFETIME_S]``. The body {"requestType": "NEW_SESSION"} opens a session
(with "older": true under the older header), {"requestType": "CLOSE"} closes it. Any other body adds
its "said" to the session. The answer has everything said so far, and this process's id.
"""

import json
import os
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from hostelry.base.clock import SystemClock

PREFIX = "X-Amzn-SageMaker-"
LIFETIME_S = float(sys.argv[2]) if len(sys.argv) > 2 else 1200.0
SESSIONS: dict[str, list[object]] = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        session_id = self.headers.get(f"{PREFIX}Session-Id")
        kind = asked.get("requestType")
        if session_id == "NEW_SESSION" and kind == "NEW_SESSION":
            self.open(f"{PREFIX}Session-Id" if asked.get("older") else f"{PREFIX}New-Session-Id")
        elif session_id not in SESSIONS:
            self.whole(400, {"error": f"no session {session_id}"})
        elif kind == "CLOSE":
            del SESSIONS[session_id]
            self.whole(200, {"pid": os.getpid()}, {f"{PREFIX}Closed-Session-Id": session_id})
        else:
            SESSIONS[session_id].append(asked.get("said"))
            self.whole(200, {"pid": os.getpid(), "said": SESSIONS[session_id]})

    def open(self, header: str) -> None:
        session_id = str(uuid.uuid4())
        SESSIONS[session_id] = []
        ends_at = SystemClock().now() + LIFETIME_S
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends_at))
        self.whole(200, {"pid": os.getpid()}, {header: f"{session_id}; Expires={until}"})

    def whole(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, output in ({"Content-Type": "application/json"} | (headers or {})).items():
            self.send_header(name, output)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
