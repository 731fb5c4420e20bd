"""botocore's service models, loaded at first use. They are the only source of shapes."""

import gzip
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel, StructureShape

from hostelry.base.json import decode

TARGETS: Mapping[str, str] = MappingProxyType(
    {
        "SageMaker": "sagemaker",
        "AnyScaleFrontendService": "application-autoscaling",
        "GraniteServiceVersion20100801": "cloudwatch",
        "Logs_20140328": "logs",
        "AmazonSQS": "sqs",
        "TrentService": "kms",
        "AmazonEC2ContainerRegistry_V20150921": "ecr",
        "secretsmanager": "secretsmanager",
        "AWSEvents": "events",
        "com.amazonaws.cloudtrail.v20131101.CloudTrail_20131101": "cloudtrail",
    }
)
"""Target prefix (of X-Amz-Target and of Smithy paths) -> service."""

VERSIONS: Mapping[str, str] = MappingProxyType(
    {
        "2010-08-01": "cloudwatch",
        "2011-06-15": "sts",
        "2010-05-08": "iam",
        "2010-03-31": "sns",
        "2016-11-15": "ec2",
    }
)
"""API version of a form body -> the service that speaks a query protocol under it."""

REST_ROOTS: Mapping[str, str] = MappingProxyType(
    {"schedules": "scheduler", "schedule-groups": "scheduler", "tags": "scheduler"}
)
"""First part of a path -> the service that speaks rest-json there."""

CONTROL_SERVICES = tuple(
    dict.fromkeys((*TARGETS.values(), *VERSIONS.values(), *REST_ROOTS.values()))
)
"""Services whose calls `call.parse_call` reads, by boto3 name.

The tables above repeat what the models say, so that a request loads its own model alone.
"""

SIGNING_NAMES: Mapping[str, str] = MappingProxyType(
    {"cloudwatch": "monitoring", "sagemaker-runtime": "sagemaker"}
)
"""boto3 name -> name in a credential's scope, where they differ."""

OPEN_ENUMS = frozenset(
    {
        "ProductionVariantInstanceType",
        "InstanceType",
        "AIRecommendationInstanceType",
        "QueueAttributeName",
    }
)
"""Enums of what AWS rents out: SageMaker's may be others here, ec2's have an error of their own, as
have the attributes of queues."""


_TEXT = rb'"documentation"\s*:\s*"[^"\\]*(?:\\.[^"\\]*)*"'
_NOT_READ = re.compile(rb"\n\s*|,\s*%b|%b\s*,?" % (_TEXT, _TEXT))
"""Line ends with indentation, and members that are texts of documentation with one comma. A quote
or a line end in a text is escaped, so that no text matches."""


class ModelFile(msgspec.Struct):
    """A file of botocore's, whose operations and shapes are still JSON."""

    metadata: dict[str, Any]
    operations: dict[str, msgspec.Raw]
    shapes: dict[str, msgspec.Raw]


class EncodedMembers(Mapping[str, Any]):
    """A JSON object whose members are decoded each time they are read.

    Encoded they take a third of the memory, and a process reads few of a model's shapes.
    """

    def __init__(self, members: Mapping[str, msgspec.Raw]) -> None:
        self._members = members

    def __getitem__(self, name: str) -> Any:
        return msgspec.json.decode(self._members[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


@cache
def model_file(service: str) -> ModelFile:
    """The newest model of `service` in the installed botocore. A user's models are ignored.

    It has no documentation, which is most of the file.
    """
    folder = max(Path(Loader.BUILTIN_DATA_PATH, service).iterdir())  # they are named by dates
    (path,) = folder.glob("service-2.json*")
    data = path.read_bytes()
    plain = gzip.decompress(data) if path.suffix == ".gz" else data
    return decode(_NOT_READ.sub(b"", plain), ModelFile)


@cache
def service_model(service: str) -> ServiceModel:
    """The model of `service`, as botocore shows it."""
    file = model_file(service)
    parts = {"operations": EncodedMembers(file.operations), "shapes": EncodedMembers(file.shapes)}
    return ServiceModel({"metadata": file.metadata, **parts}, service)


def modelled_errors(service: str) -> list[StructureShape]:
    """The errors that `service` models. botocore's list would decode every shape."""
    model = service_model(service)
    named = [name for name, it in model_file(service).shapes.items() if b'"exception"' in bytes(it)]
    return [shape for shape in map(model.shape_for, named) if shape.metadata.get("exception")]


@cache
def service_operations(service: str) -> frozenset[str]:
    """Names of all operations that the model of `service` knows."""
    return frozenset(service_model(service).operation_names)


def operation_model(service: str, operation: str) -> OperationModel:
    """The model of an operation. Raises botocore's OperationNotFoundError if it is unknown."""
    return service_model(service).operation_model(operation)


def signing_name(service: str) -> str:
    """The name of `service` (a boto3 name) in a credential's scope."""
    return SIGNING_NAMES.get(service, service)
