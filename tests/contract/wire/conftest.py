"""Valid values for any shape of a service model, and botocore as the client's side."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import create_request_object, prepare_request_dict
from botocore.model import ListShape, MapShape, OperationModel, Shape, StructureShape
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

from hostelry.aws.constraints import compile_pattern
from hostelry.aws.models import operation_model
from hostelry.base.http import HttpRequest, HttpResponse

GATEWAY = "http://127.0.0.1:8787"
DEEPEST = 6
BITS = {"integer": 31, "long": 63}
START, END = datetime(1971, 1, 1, tzinfo=UTC), datetime(2199, 1, 1, tzinfo=UTC)
ODD_TEXTS = ("", " ", "\t\r\n", "<&>\"'", "\u00e9\u4e2d", "\U0001f98a", "a=b&c+d%20;", "null", "0")
SAMPLES = (
    *ODD_TEXTS,
    "name-1",
    "e" * 20,
    "a" * 40,
    "12345",
    "123456",
    "123456789012",
    "/opt/ml/model",
    "/opt/ml/\u00e9",
    "s3://bucket/key",
    "https://h/",
    "arn:aws:iam::111122223333:role/HostelryExecutionRole",
    "arn:aws:sagemaker:us-west-2:111122223333:endpoint/name",
    "arn:aws:sagemaker:us-west-2:111122223333:endpoint-config/name",
    "arn:aws:sagemaker:us-west-2:111122223333:model/name",
    "arn:aws:sagemaker:us-west-2:111122223333:model-package/name/1",
    "arn:aws:sagemaker:us-west-2:111122223333:inference-recommendations-job/name",
    "arn:aws:sagemaker:us-west-2:111122223333:ai-workload-config/name",
    "arn:aws:sagemaker:us-west-2:111122223333:ai-benchmark-job/name",
    "arn:aws:sagemaker:us-west-2:111122223333:ai-recommendation-job/name",
    "arn:aws:sagemaker:us-west-2:111122223333:model-package/name",
    "arn:aws:sagemaker:us-west-2:111122223333:mlflow-app/name",
    "arn:aws:sns:us-west-2:111122223333:topic",
    "arn:aws:sqs:us-west-2:111122223333:queue",
    "arn:aws:kms:us-west-2:111122223333:key/1234",
    "arn:aws:secretsmanager:us-west-2:111122223333:secret:name",
    "arn:aws:scheduler:us-west-2:111122223333:schedule-group/group",
    "arn:aws:application-autoscaling:us-west-2:111122223333:scalable-target/1234abcd56",
    "vendor/model",
    "1.2",
    "v1",
    "/",
    "/path/",
    "mig-1g.5gb",
    "111122223333",
    "sha256:" + 64 * "0",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyValue:
    """A value that fits a shape, drawn from `random`.

    Args:
        full: whether all optional members are present.
        constrained: whether lengths, patterns and ranges are kept. Results have no binding ones.
    """

    random: Random
    full: bool
    constrained: bool

    def of(self, shape: Shape, depth: int = 0) -> Any:
        if isinstance(shape, StructureShape):
            return self.structure(shape, depth)
        if isinstance(shape, ListShape):
            return [self.of(shape.member, depth + 1) for _ in range(self.size(shape))]
        if isinstance(shape, MapShape):
            known = sorted(texts(shape.key) if self.constrained else SAMPLES)
            keys = self.random.sample(known, min(self.size(shape), len(known)))
            return {key: self.of(shape.value, depth + 1) for key in keys}
        return self.scalar(shape)

    def size(self, shape: Shape) -> int:
        least = max(int(shape.metadata.get("min", 0)), int(self.full))
        return self.random.randint(least, max(least, min(2, int(shape.metadata.get("max", 2)))))

    def structure(self, shape: StructureShape, depth: int) -> dict[str, Any]:
        names = list(shape.members)
        if shape.is_tagged_union:
            names = [self.random.choice(names)]
        elif depth > DEEPEST:
            names = shape.required_members
        elif not self.full:
            needed = shape.required_members
            chosen = [name for name in names if name in needed or self.random.random() < 0.5]
            names = chosen or names[:1]
        return {name: self.of(shape.members[name], depth + 1) for name in names}

    def scalar(self, shape: Shape) -> Any:
        kind, least, most = shape.type_name, shape.metadata.get("min"), shape.metadata.get("max")
        if kind in BITS:
            low = -(1 << BITS[kind]) if least is None else int(least)
            high = (1 << BITS[kind]) - 1 if most is None else int(most)
            return self.random.choice((low, high, self.random.randint(low, high)))
        if kind in ("float", "double"):
            floor = -1e18 if least is None else float(least)
            return self.random.choice(
                (floor, self.random.uniform(floor, 1e18 if most is None else most))
            )
        if kind == "boolean":
            return self.random.random() < 0.5
        if kind == "blob":
            return self.random.randbytes(self.random.randint(least or 0, 20))
        if kind == "timestamp":
            whole = self.random.random() < 0.5
            moment = START + (END - START) * self.random.random()
            return moment.replace(microsecond=0) if whole else moment
        return self.random.choice(texts(shape) if self.constrained else SAMPLES)


@cache
def texts(shape: Shape) -> list[str]:
    choices = shape.metadata.get("enum")
    if choices:
        return list(choices)
    least, most = shape.metadata.get("min", 0), shape.metadata.get("max", 1 << 30)
    pattern = compile_pattern(shape.metadata.get("pattern", r"[\s\S]*"))
    fitting = [text for text in SAMPLES if pattern.fullmatch(text) and least <= len(text) <= most]
    assert fitting, f"no sample fits {shape.name}: {shape.metadata}"
    return fitting


@pytest.fixture(scope="session")
def any_value() -> type[AnyValue]:
    return AnyValue


def seconds(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, list):
        return [seconds(item) for item in value]
    if isinstance(value, Mapping):
        return {key: seconds(item) for key, item in value.items()}
    return value


@pytest.fixture(scope="session")
def in_seconds() -> Callable[[Any], Any]:
    """The same value with datetimes as epoch seconds, as in `hostelry.aws`."""
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The work of botocore for one operation in one protocol, without a network."""

    service: str
    operation: str
    protocol: str

    @property
    def model(self) -> OperationModel:
        return operation_model(self.service, self.operation)

    def request(self, params: Mapping[str, Any]) -> HttpRequest:
        serializer = create_serializer(self.protocol, include_validation=False)
        request = serializer.serialize_to_request(params, self.model)
        prepare_request_dict(request, endpoint_url=GATEWAY, context={})
        prepared = create_request_object(request).prepare()
        url = urlsplit(prepared.url)
        headers = {name.lower(): text(value) for name, value in prepared.headers.items()}
        body = prepared.body or b""
        body = body.encode() if isinstance(body, str) else bytes(body)
        return HttpRequest(prepared.method, url.path, url.query, headers, body)

    def read(self, response: HttpResponse) -> dict[str, Any]:
        """Parse `response` as botocore does: a result, or an error with its modelled members."""
        raw = {
            "status_code": response.status,
            "headers": {name.lower(): value for name, value in response.headers.items()},
            "body": response.body,
        }
        parser = create_parser(self.protocol)
        parsed: dict[str, Any] = parser.parse(raw, self.model.output_shape)
        if response.status >= 301:
            shape = self.model.service_model.shape_for_error_code(parsed["Error"]["Code"])
            parsed |= {} if shape is None else parser.parse(raw, shape)
        return parsed


def text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


@pytest.fixture(scope="session")
def client() -> type[Client]:
    return Client
