"""ServerlessConfig of CreateEndpointConfig: what a request gives is checked before it is refused.

Serverless variants do not run yet. A request that could never be accepted learns why first, so
that it is not mistaken for one that only has to wait for them.
"""

from collections.abc import Mapping
from typing import Any

from hostelry.api.context import Params
from hostelry.api.refusals import unsupported
from hostelry.domain.serverless import ServerlessConfig, check_combination, check_serverless

ADVICE = (
    "Give InstanceType and InitialInstanceCount instead; to have no process while there are no"
    " requests, use an endpoint of inference components, which scales to zero copies and instances."
)


def refuse_serverless(params: Params) -> None:
    """Raise ValidationException where a variant is serverless: for its fault, if it has one."""
    variants = params["ProductionVariants"]
    for number, given in enumerate(variants, start=1):
        if given.get("ServerlessConfig") is None:
            continue
        path = f"ProductionVariants.{number}"
        check_combination(path, _named(given), _named(_switched_on(params)), len(variants))
        check_serverless(serverless_of(given["ServerlessConfig"]), f"{path}.ServerlessConfig")
        raise unsupported(f"{path}.ServerlessConfig", ADVICE)


def serverless_of(given: Mapping[str, Any]) -> ServerlessConfig:
    """The configuration that `given` describes; not checked."""
    return ServerlessConfig(
        memory_mb=given["MemorySizeInMB"],
        max_concurrency=given["MaxConcurrency"],
        provisioned_concurrency=given.get("ProvisionedConcurrency") or 0,
    )


def _switched_on(params: Params) -> Mapping[str, Any]:
    """The members of a request without those that switch something off."""
    capture = params.get("DataCaptureConfig") or {}
    off = {
        "DataCaptureConfig": not (capture and capture.get("EnableCapture", True)),
        "EnableNetworkIsolation": not params.get("EnableNetworkIsolation"),
    }
    return {name: it for name, it in params.items() if not off.get(name)}


def _named(given: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(name for name, it in given.items() if it is not None)
