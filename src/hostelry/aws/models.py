"""botocore's service models, loaded at first use; the only source of shapes."""

import gzip
import json
import os
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from botocore.loaders import JSONFileLoader, Loader
from botocore.model import OperationModel, ServiceModel

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

OPEN_ENUMS = frozenset({"ProductionVariantInstanceType", "InstanceType", "QueueAttributeName"})
"""Enums of what AWS rents out: SageMaker's may be others here, ec2's have an error of their own, as
have the attributes of queues."""


class PlainModels(JSONFileLoader):  # type: ignore[misc] # botocore has no types
    """Reads models without their documentation, which is most of them.

    Equal references to shapes are one object. botocore never changes a model.
    """

    def load_file(self, file_path: str) -> dict[str, Any] | None:
        """The model at `file_path` plus ``.json`` or ``.json.gz``; None if there is neither."""
        known: dict[tuple[tuple[str, Any], ...], dict[str, Any]] = {}

        def slim(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            # A member of that name is no text.
            kept = [it for it in pairs if it[0] != "documentation" or not isinstance(it[1], str)]
            if all(isinstance(it[1], str) for it in kept):
                return known.setdefault(tuple(kept), dict(kept))
            return dict(kept)

        for path, opened in ((f"{file_path}.json", open), (f"{file_path}.json.gz", gzip.open)):
            if os.path.isfile(path):
                with opened(path, "rb") as file:
                    model: dict[str, Any] = json.loads(file.read(), object_pairs_hook=slim)
                    return model
        return None


@cache
def service_model(service: str) -> ServiceModel:
    """The newest model of `service` that the installed botocore ships; a user's own are ignored."""
    loader = Loader(
        extra_search_paths=[Loader.BUILTIN_DATA_PATH],
        include_default_search_paths=False,
        file_loader=PlainModels(),
    )
    return ServiceModel(loader.load_service_model(service, "service-2"), service)


@cache
def service_operations(service: str) -> frozenset[str]:
    """Names of all operations that the model of `service` knows."""
    return frozenset(service_model(service).operation_names)


def operation_model(service: str, operation: str) -> OperationModel:
    """The model of one operation; raises botocore's OperationNotFoundError for an unknown one."""
    return service_model(service).operation_model(operation)


def signing_name(service: str) -> str:
    """The name of `service` (a boto3 name) in a credential's scope."""
    return SIGNING_NAMES.get(service, service)
