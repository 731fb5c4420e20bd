"""Asynchronous requests with a real object store, and a scripted model and control."""

import asyncio
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.integration.platform import client
from tests.integration.test_objectstore import KEYS
from tests.memory_queue import MemoryQueue

from hostelry.aws.s3_signing import OwnKey
from hostelry.base.clock import SystemClock
from hostelry.dataplane.capture.capture import RequestCapture
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.routes import FixedRoutes
from hostelry.domain.async_request import AsyncInference, AsyncRequest
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import CopyRoute, EndpointRoute, RouteSnapshot, VariantRoute
from hostelry.domain.scope import Scope
from hostelry.jobs.dispatch.async_work import AsyncWork, WorkPlaces
from hostelry.jobs.queue.protocol import QueueCommits, RequestQueue
from hostelry.jobs.queue.work_claims import SharedWork

SCOPE = Scope("111122223333", "us-west-2")
SUCCESS = "arn:aws:sns:us-west-2:111122223333:good"
ERROR = "arn:aws:sns:us-west-2:111122223333:bad"


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections, which are part of the tests."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Model:
    """A model server that obeys the request's custom attributes, and counts attempts.

    (nothing)       the answer is the body
    sha             ... its SHA-256
    status=N        an error with that status
    recovers=N      a 500 the first N times, then the body
    cut             the connection is closed without an answer
    hang            no answer
    """

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()
        self.kinds: dict[str, str] = {}
        self.in_flight = self.most_in_flight = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        model = self

        class OfModel(Handler):
            def do_POST(self) -> None:
                with model._lock:
                    model.in_flight += 1
                    model.most_in_flight = max(model.most_in_flight, model.in_flight)
                try:
                    model.serve(self)
                finally:
                    with model._lock:
                        model.in_flight -= 1

        self._server = QuietServer(("127.0.0.1", 0), OfModel)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def serve(self, call: Handler) -> None:
        name = call.headers["X-Amzn-SageMaker-Inference-Id"]
        self.attempts[name] += 1
        self.kinds[name] = call.headers["Content-Type"]
        command = call.headers.get("X-Amzn-SageMaker-Custom-Attributes", "")
        verb, _, number = command.partition("=")
        body = call.rfile.read(int(call.headers["Content-Length"]))
        if verb == "status":
            call.answer(int(number), b"the model's own words")
        elif verb == "recovers" and self.attempts[name] <= int(number):
            call.answer(500, b"not yet")
        elif verb == "cut":
            call.close_connection = True
            call.connection.close()
        elif verb == "hang":
            self._ended.wait(30)
        elif verb == "slow":
            time.sleep(float(number))
            call.answer(200, body, "text/plain")
        elif verb == "sha":
            call.answer(200, hashlib.sha256(body).hexdigest().encode(), "text/plain")
        else:
            call.answer(200, body, "text/plain")

    def stop(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()


class Control:
    """Control as the jobs process sees it. It keeps each request."""

    def __init__(self) -> None:
        self.messages: dict[str, dict[str, Any]] = {}
        self.samples: list[dict[str, Any]] = []
        self.num_refused = 0
        control = self

        class OfControl(Handler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                control.take(self.path, json.loads(body))
                self.answer(204, b"")

            def do_GET(self) -> None:
                exists = "endpoint=gone" not in self.path
                self.answer(200, json.dumps({"exists": exists}).encode())

        self._server = QuietServer(("127.0.0.1", 0), OfControl)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def take(self, path: str, content: dict[str, Any]) -> None:
        if path == "/internal/publish":
            shown = json.loads(content["message"])
            self.messages[shown["inferenceId"]] = {**shown, "topic": content["topic_arn"]}
        elif path == "/internal/async-metrics":
            self.samples += [it["sample"] for it in content["samples"]]

    def published(self, name: str) -> float:
        """The sum of a metric's values."""
        found = (it for it in self.samples if it["metric"]["name"] == name)
        pairs = (zip(it["values"], it["counts"], strict=True) for it in found)
        return float(sum(value * count for pair in pairs for value, count in pair))

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class AsyncRig:
    """Model, control and object store of a test."""

    def __init__(self, s3_port: int) -> None:
        self.s3_url = f"http://127.0.0.1:{s3_port}"
        self.s3: Any = client("s3", self.s3_url, KEYS)
        for bucket in ("in-put", "out-put"):
            self.s3.create_bucket(Bucket=bucket)
        self.model, self.control = Model(), Control()
        self.queue = MemoryQueue()

    def stop(self) -> None:
        self.s3.close()
        self.model.stop()
        self.control.stop()

    def request(self, name: str, command: str | None = None, **more: Any) -> AsyncRequest:
        """A request that expires in a minute. Its body is inline, unless `more` has an input."""
        now = SystemClock().now()
        given = {"body": name.encode()} if "input_uri" not in more else {}
        defaults: dict[str, Any] = {
            "id": name,
            "inference_id": name,
            "scope": SCOPE,
            "endpoint_name": "queued",
            "custom_attributes": command,
            "output_uri": f"s3://out-put/{name}.out",
            "failure_uri": f"s3://out-put/{name}-error.out",
            "success_topic_arn": SUCCESS,
            "error_topic_arn": ERROR,
            "accepted_at": now,
            "expires_at": now + 60,
            "timeout_s": 30.0,
        }
        return AsyncRequest(**{**defaults, **given, **more})

    def routes(self, *addresses: str, limit: int = 4) -> FixedRoutes:
        return FixedRoutes(self.snapshot(*addresses, limit=limit))

    def snapshot(self, *addresses: str, limit: int = 4) -> RouteSnapshot:
        copies = tuple(CopyRoute(id=it, address=it) for it in addresses)
        variant = VariantRoute(
            name="AllTraffic", weight=1.0, routing=RoutingStrategy.RANDOM, copies=copies
        )
        settings = AsyncInference(output_uri="s3://out-put", max_concurrent_per_instance=limit)
        endpoint = EndpointRoute(
            scope=SCOPE,
            name="queued",
            takes_components=False,
            variants=(variant,),
            async_inference=settings,
            created_at=2.0,
        )
        return RouteSnapshot(version="1", endpoints=(endpoint,))

    def work(self, routes: FixedRoutes, queue: RequestQueue) -> AsyncWork:
        key = OwnKey(
            access_key_id=KEYS.access_key_id,
            secret_access_key=KEYS.secret_access_key,
            region=KEYS.region,
        )
        places = WorkPlaces(
            s3_url=self.s3_url, s3_key=key, control_url=self.control.address, internal_key="key"
        )
        clock = SystemClock()
        nothing_captured = RequestCapture(None, lambda: 0.5, clock)
        meter = Meter(clock.now)
        return AsyncWork(
            QueueCommits(queue), routes, places, meter, nothing_captured, clock,
            SharedWork(None, clock),
        )  # fmt: skip

    def run(
        self,
        scenario: Callable[[AsyncWork], Awaitable[None]],
        routes: FixedRoutes,
        queue: RequestQueue | None = None,
        grace_s: float = 5.0,
    ) -> None:
        """Run `scenario` with all tasks running, then drain."""

        async def main() -> None:
            work = self.work(routes, queue or self.queue)
            tasks = [asyncio.create_task(it) for it in work.tasks().values()]
            try:
                async with asyncio.timeout(90):
                    await scenario(work)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await work.drain(grace_s)

        asyncio.run(main())

    def stored(self, uri: str) -> tuple[bytes, str]:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        found = self.s3.get_object(Bucket=bucket, Key=key)
        return found["Body"].read(), found["ContentType"]

    def outputs(self) -> set[str]:
        found = self.s3.list_objects_v2(Bucket="out-put").get("Contents", ())
        return {it["Key"] for it in found}


async def until_true(check: Callable[[], bool]) -> None:
    """Return once `check` is true. The scenario's own time limit ends a wait in vain."""
    while not check():  # noqa: ASYNC110 - other threads change the state
        await asyncio.sleep(0.01)
