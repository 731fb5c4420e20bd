"""Removes what a run of an example has made: its own at its end, an earlier one's at its start.

An example that was interrupted, or failed half-way, leaves an endpoint under the name that its next
run needs. Nothing but the names that the example itself gives is touched.
"""

import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import boto3
from botocore.exceptions import ClientError

PATIENCE_S = 300.0
POLL_S = 0.25
NAME_OF = {
    "inference_component": "InferenceComponentName",
    "endpoint": "EndpointName",
    "endpoint_config": "EndpointConfigName",
    "model": "ModelName",
}

sm_client = boto3.client("sagemaker")


def remove(endpoint: str, components: Collection[str] = (), models: Iterable[str] = ()) -> None:
    """Delete the components with their adapters, the endpoint with its configuration, the models.

    Each may be missing or in any state; deletions are printed. Exits where the endpoint has a
    component of another program.
    """
    adapters, bases = on_endpoint(endpoint, components)
    for names in (adapters, bases):
        remove_all("inference_component", sorted(names))
    for kind, names in (("endpoint", [endpoint]), ("endpoint_config", [endpoint])):
        remove_all(kind, names)
    remove_all("model", models)


def deregister(resource_id: str, dimension: str) -> None:
    """Stop scaling the resource; its policies are removed, too."""
    with suppress(ClientError):  # it was not registered
        boto3.client("application-autoscaling").deregister_scalable_target(
            ServiceNamespace="sagemaker",
            ResourceId=resource_id,
            ScalableDimension=f"sagemaker:{dimension}",
        )


def on_endpoint(endpoint: str, own: Collection[str]) -> tuple[list[str], list[str]]:
    """The endpoint's adapters of components in `own`, and these; exits for others."""
    adapters, bases = [], []
    pages = sm_client.get_paginator("list_inference_components").paginate(
        EndpointNameEquals=endpoint
    )
    shown_components = (it for page in pages for it in page["InferenceComponents"])
    for name in [it["InferenceComponentName"] for it in shown_components]:
        if name in own:
            bases.append(name)
        elif (shown := described("inference_component", name)) is not None:
            if shown["Specification"].get("BaseInferenceComponentName") not in own:
                raise SystemExit(
                    f"component {name} on endpoint {endpoint} belongs to another program: "
                    "delete it before the program runs again"
                )
            adapters.append(name)
    return adapters, bases


def remove_all(kind: str, names: Iterable[str]) -> None:
    """Delete the resources with these names, and wait until they are gone."""
    left = [it for it in names if described(kind, it) is not None]
    if left:
        print(f"Removing {kind.replace('_', ' ')} {', '.join(left)} ...", flush=True)
    deadline = time.perf_counter() + PATIENCE_S
    while left:
        for name in left:
            with suppress(ClientError):  # gone meanwhile, or busy: tried again
                getattr(sm_client, f"delete_{kind}")(**{NAME_OF[kind]: name})
        left = [it for it in left if described(kind, it) is not None]
        if left and time.perf_counter() > deadline:
            raise SystemExit(f"{kind} {', '.join(left)}: not gone within {PATIENCE_S:g} s")
        time.sleep(POLL_S if left else 0.0)


def described(kind: str, name: str) -> dict[str, Any] | None:
    """The resource's description; None where it does not exist."""
    try:
        shown: dict[str, Any] = getattr(sm_client, f"describe_{kind}")(**{NAME_OF[kind]: name})
    except ClientError as error:
        if "could not find" in str(error).lower():
            return None
        raise
    return shown
