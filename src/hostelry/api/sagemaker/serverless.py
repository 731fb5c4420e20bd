"""ServerlessConfig and ServerlessUpdateConfig of requests, checked.

Sources: "Deploy models with Amazon SageMaker Serverless Inference" in the developer guide for
exclusions, and "Amazon SageMaker AI endpoints and quotas" in the AWS General Reference for limits.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from hostelry.api.context import CallContext, Params
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.model import Model
from hostelry.domain.serverless import ServerlessConfig, check_combination, check_serverless

MAX_ENDPOINTS = 50  # serverless endpoints of an account in a region
MAX_TOTAL_CONCURRENCY = 1000  # of all serverless endpoints together
# Parts of the tags of AWS's images that are built for CUDA, or for Inferentia and Trainium.
ACCELERATED_TAG = re.compile(r":.*(^|[-:])(gpu|cu\d{2,3}|neuronx?)($|[-.])")


def check_serverless_variants(params: Params) -> None:
    """Refuse an invalid ServerlessConfig, and members that it excludes."""
    variants = params["ProductionVariants"]
    for number, given in enumerate(variants, start=1):
        if given.get("ServerlessConfig") is None:
            continue
        path = f"ProductionVariants.{number}"
        check_combination(
            path, _name_models(given), _name_models(_switched_on(params)), len(variants)
        )
        check_serverless(build_serverless(given["ServerlessConfig"]), f"{path}.ServerlessConfig")


def build_serverless(given: Mapping[str, Any]) -> ServerlessConfig:
    """The configuration that `given` describes, without checks."""
    return ServerlessConfig(
        memory_mb=given["MemorySizeInMB"],
        max_concurrency=given["MaxConcurrency"],
        provisioned_concurrency=given.get("ProvisionedConcurrency") or 0,
    )


def describe_serverless(config: ServerlessConfig) -> dict[str, int]:
    """ServerlessConfig as Describe shows it."""
    provisioned = config.provisioned_concurrency
    return {
        "MemorySizeInMB": config.memory_mb,
        "MaxConcurrency": config.max_concurrency,
        **({"ProvisionedConcurrency": provisioned} if provisioned else {}),
    }


def changed_config(
    live: EndpointVariant, change: Mapping[str, Any], path: str
) -> ServerlessConfig | None:
    """The configuration of `live` after ServerlessUpdateConfig, or None without one.

    `path` names the change in messages.
    """
    given, now = change.get("ServerlessUpdateConfig"), live.serverless
    if now is None:
        if given is not None:
            raise validation_error(
                f'{path}ServerlessUpdateConfig: variant "{live.variant.name}" has instances; give'
                " DesiredInstanceCount."
            )
        return None
    if change.get("DesiredInstanceCount") is not None:
        raise validation_error(
            f'{path}DesiredInstanceCount: variant "{live.variant.name}" is serverless, and the'
            " platform chooses its instances; give ServerlessUpdateConfig."
        )
    if given is None:
        return None
    after = ServerlessConfig(
        memory_mb=now.memory_mb,
        max_concurrency=given.get("MaxConcurrency", now.max_concurrency),
        provisioned_concurrency=given.get("ProvisionedConcurrency", now.provisioned_concurrency),
    )
    check_serverless(after, f"{path}ServerlessUpdateConfig")
    return after


def check_serverless_model(model: Model) -> None:
    """Refuse a model that no serverless variant can run."""
    where = f'model "{model.name}" of a serverless variant'
    if len(model.containers) != 1:
        raise validation_error(
            f"{where} has {len(model.containers)} containers; inference pipelines are not possible"
            " there. Give a model of one container."
        )
    (container,) = model.containers
    given = model.given.get("PrimaryContainer") or (model.given.get("Containers") or [{}])[0]
    faults = {
        "Mode MultiModel": container.is_multi_model,
        "ModelDataSource": given.get("ModelDataSource") is not None,
        "VpcConfig": model.given.get("VpcConfig") is not None,
        "EnableNetworkIsolation": bool(model.given.get("EnableNetworkIsolation")),
    }
    advice = {"ModelDataSource": " Give ModelDataUrl, of a .tar.gz, instead."}
    for fault, is_there in faults.items():
        if is_there:
            raise validation_error(
                f"{where} has {fault}, which serverless variants do not support."
                + advice.get(fault, "")
            )
    if ACCELERATED_TAG.search(container.image.rpartition("/")[2]):
        raise validation_error(
            f"{where} has the image {container.image}, which is built for accelerators; serverless"
            " variants have none. Give the image for CPUs."
        )


def check_quotas(context: CallContext, endpoint_name: str, wanted: Deployment) -> None:
    """Refuse serverless endpoints and concurrency beyond the quotas of an account in a region."""
    asked = _max_concurrency((wanted,))
    if not asked:
        return
    endpoints = (it.value for it in context.state.endpoints.list(context.scope))
    others = [_max_concurrency(_deployments(it)) for it in endpoints if it.name != endpoint_name]
    _check_quota(
        "Maximum number of serverless endpoints",
        "Serverless endpoints",
        MAX_ENDPOINTS,
        sum(1 for it in others if it),
        1,
    )
    _check_quota(
        "Maximum total concurrency that can be allocated across all serverless endpoints",
        "Total Concurrency",
        MAX_TOTAL_CONCURRENCY,
        sum(others),
        asked,
    )


def _max_concurrency(deployments: Iterable[Deployment]) -> int:
    """The highest MaxConcurrency of the deployments, or 0 without serverless variants."""
    configs = (it.serverless for deployment in deployments for it in deployment.variants)
    return max((it.max_concurrency for it in configs if it is not None), default=0)


def check_serverless_update(endpoint: Endpoint, pending: Deployment) -> None:
    """Refuse an update from instances to serverless, and guards if either is serverless.

    Source: "Deployment guardrails" in the developer guide, which are only for asynchronous and
    real-time endpoints.
    """
    was, will_be = bool(_max_concurrency((endpoint.active,))), bool(_max_concurrency((pending,)))
    if will_be and not was:
        raise validation_error(
            f'Endpoint "{endpoint.arn}" has instances; an update cannot make it serverless. Create'
            " another endpoint."
        )
    guard = pending.guard
    if (was or will_be) and guard is not None and guard.may_go_back:
        raise validation_error(
            f'Endpoint "{endpoint.arn}" is serverless; deployment guardrails (alarms,'
            " steps of traffic, TerminationWaitInSeconds, MaximumExecutionTimeoutInSeconds) are for"
            " endpoints with instances. Update it without them."
        )


def _deployments(endpoint: Endpoint) -> tuple[Deployment, ...]:
    ended = (EndpointStatus.DELETING, EndpointStatus.FAILED)
    return () if endpoint.status in ended else endpoint.deployments


def _check_quota(name: str, unit: str, limit: int, used: int, more: int) -> None:
    if used + more > limit:
        raise ServiceError(
            "ResourceLimitExceeded",
            f"The account-level service limit '{name}' is {limit} {unit}, with current utilization"
            f" of {used} {unit} and a request delta of {more} {unit}. Please use AWS Service Quotas"
            " to request an increase for this quota. If AWS Service Quotas is not available,"
            " contact AWS support to request an increase for this quota.",
        )


def _switched_on(params: Params) -> Mapping[str, Any]:
    """The members of a request without those that switch something off."""
    capture = params.get("DataCaptureConfig") or {}
    off = {
        "DataCaptureConfig": not (capture and capture.get("EnableCapture", True)),
        "EnableNetworkIsolation": not params.get("EnableNetworkIsolation"),
    }
    return {name: it for name, it in params.items() if not off.get(name)}


def _name_models(given: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(name for name, it in given.items() if it is not None)
