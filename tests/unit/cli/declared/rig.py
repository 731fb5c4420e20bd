"""Documents applied to a town: real APIs over a real store, reconcilers, an in-memory fleet."""

import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from tests.unit.reconcile.samples import SCOPE, Town

from hostelry.api.context import CallContext
from hostelry.api.operations import perform
from hostelry.aws.call import ApiCall, parse_call, serialize_error, serialize_result
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.cli.artifacts.files import Advance
from hostelry.cli.declared.application import Application, AppliedStep, add_uploads
from hostelry.cli.declared.aws import AwsError, call_client
from hostelry.cli.declared.expansion import wanted_state
from hostelry.cli.declared.resource import ApplyStep, ResourceKey, StepPlan, UploadedFile
from hostelry.cli.declared.source import parse_sources
from hostelry.domain.shape import Shape
from hostelry.metrics.series.store import MemoryMetrics

ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
READS = ("Describe", "List", "Head")
BUCKET = "applied"


class Killed(BaseException):
    """The process is killed at a call."""


class Body:
    """A response's body with the methods that botocore uses."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> Any:
        yield self._body


@cache
def clients() -> dict[str, Any]:
    """botocore's clients, shared because they are slow to make. `TownAws` answers the last one."""
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    config = Config(retries={"total_max_attempts": 1}, parameter_validation=True)
    found = {
        service: boto3.client(service, region_name=SCOPE.region, config=config, **keys)
        for service in ("sagemaker", "cloudwatch", "application-autoscaling")
    }
    for client in found.values():
        client.meta.events.register("before-send", lambda request, **_: ANSWER[-1](request))
    return found


ANSWER: list[Callable[[AWSPreparedRequest], AWSResponse]] = []


class TownAws:
    """AWS's APIs of a town. At the write `kill_at` the process is killed, before or after it."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self._turn = threading.RLock()  # only one thread may move a town
        self.objects: dict[tuple[str, str], bytes] = {}
        self.writes: list[str] = []
        self.kill_at: int | None = None
        self.after = False
        self.before_write: Callable[[str, Mapping[str, Any]], None] = lambda *_: None
        self.metrics = MemoryMetrics(town.clock)
        ANSWER.append(self.answer)

    def call(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if operation.startswith(READS):
            return self._call(service, operation, params)
        self.before_write(operation, params)
        return self._written(operation, lambda: self._call(service, operation, params))

    def upload(self, file: UploadedFile, advance: Advance) -> None:
        def put() -> dict[str, Any]:
            for order in file.orders:
                read = [Path(it.path).read_bytes() for it in order.files]
                self.objects[file.bucket, order.key] = b"".join(read)
            advance(file.num_bytes)
            return {}

        self._written("PutObject", put)

    def _written(self, operation: str, write: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        self.writes.append(operation)
        dies = self.kill_at == len(self.writes)
        if dies and not self.after:
            raise Killed
        result = write()
        if dies:
            raise Killed
        return result

    def _call(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if service != "s3":
            with self._turn:
                return call_client(clients()[service], operation, params)
        if (params["Bucket"], params["Key"]) not in self.objects:
            raise AwsError("404", "Not Found", is_conflict=False)
        return {}

    def pause(self, seconds: float) -> None:
        with self._turn:
            self.town.turn(seconds=seconds)

    def answer(self, request: AWSPreparedRequest) -> AWSResponse:
        url = urlsplit(request.url)
        headers = {
            name.lower(): it.decode() if isinstance(it, bytes) else it
            for name, it in request.headers.items()
        }
        given = request.body or b""
        body = given.encode() if isinstance(given, str) else bytes(given)
        arrived = HttpRequest(request.method, url.path, url.query, headers, body)
        context = CallContext(
            scope=SCOPE,
            state=self.town.state,
            now=self.town.clock.now(),
            get_shape=lambda _: Shape(cpus=48, memory_bytes=2**38, accelerators=4),
            role_arn=ROLE,
            role_name="HostelryExecutionRole",
            metrics=self.metrics,
        )
        call: ApiCall | None = None
        try:
            call = parse_call(arrived, "id")
            result = perform(context, call.service, call.operation, call.params)
            response = serialize_result(call, result)
        except ServiceError as error:
            response = serialize_error(error, call, "id", arrived)
        answered = {name.lower(): value for name, value in response.headers.items()}
        return AWSResponse(request.url, response.status, answered, Body(response.body))


class Silent:
    """A listener that records outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[AppliedStep] = []

    def report_start(self, step: ApplyStep) -> None:
        pass

    def report_wait(self, key: ResourceKey, status: str) -> None:
        pass

    def report_sent(self, step: ApplyStep, num_bytes: float) -> None:
        pass

    def report_end(self, outcome: AppliedStep) -> None:
        self.outcomes.append(outcome)


def application(
    aws: TownAws, text: str, folder: Path = Path(), *, prune: bool = False, workers: int = 1
) -> Application:
    """The application of a text of documents to a town."""
    wanted = wanted_state(parse_sources(text, "shop.yaml", folder), ROLE)
    wanted, uploads = add_uploads(wanted, BUCKET)
    return Application(
        aws=aws,
        wanted=wanted,
        uploads=uploads,
        prune=prune,
        pause=aws.pause,
        listener=Silent(),
        num_workers=workers,
    )


def apply(aws: TownAws, text: str, folder: Path = Path(), *, prune: bool = False) -> StepPlan:
    """Apply a text, and return the first plan."""
    return application(aws, text, folder, prune=prune).converge(lambda _: None)


def difference(aws: TownAws, text: str, folder: Path = Path(), *, prune: bool = False) -> StepPlan:
    """The plan for a text, without carrying it out."""
    one = application(aws, text, folder, prune=prune)
    return one.plan(one.observe())


def described(plan: StepPlan) -> list[str]:
    """Each step as a short text."""
    return [f"{it.operation or it.act.value} {it.key.name.partition('|')[0]}" for it in plan.steps]
