"""botocore's service models, loaded at first use; the only source of shapes."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel

CONTROL_SERVICES = ("sagemaker", "application-autoscaling", "cloudwatch", "sts", "iam")
"""Services whose calls `call.parse_call` reads, by boto3 name."""

OPEN_ENUMS = frozenset({"ProductionVariantInstanceType"})
"""Enums that list what AWS rents out: other instance types are valid here."""


@cache
def service_model(service: str) -> ServiceModel:
    """The newest model of `service` that the installed botocore ships; a user's own are ignored."""
    loader = Loader(
        extra_search_paths=[Loader.BUILTIN_DATA_PATH], include_default_search_paths=False
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
    metadata: Mapping[str, str] = service_model(service).metadata
    return metadata.get("signingName") or metadata["endpointPrefix"]


@cache
def services_by_target() -> Mapping[str, str]:
    """Target prefix (of X-Amz-Target and of Smithy paths) -> service."""
    prefixes = {service_model(name).metadata.get("targetPrefix"): name for name in CONTROL_SERVICES}
    prefixes.pop(None, None)
    return MappingProxyType(prefixes)


@cache
def services_by_version() -> Mapping[str, str]:
    """API version of a form body -> the service that speaks the query protocol under it."""
    return MappingProxyType(
        {
            service_model(name).api_version: name
            for name in CONTROL_SERVICES
            if "query" in service_model(name).metadata["protocols"]
        }
    )
