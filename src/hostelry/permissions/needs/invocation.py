"""The permissions that invocations of endpoints need."""

from collections.abc import Callable, Mapping

import msgspec

from hostelry.domain.scope import Scope
from hostelry.permissions.needs.needed import NeededPermission, Values, build_resource_keys

WHOLE, STREAMED, ASYNCHRONOUS = (
    "InvokeEndpoint", "InvokeEndpointWithResponseStream", "InvokeEndpointAsync",
)  # fmt: skip


class InvokedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What an invocation names. Empty texts are not given."""

    endpoint: str
    component: str = ""
    model: str = ""
    container: str = ""


def needed_for_invocation(
    operation: str,
    target: InvokedTarget,
    scope: Scope,
    tags_of: Callable[[str], Mapping[str, str]] = lambda _: {},
) -> tuple[NeededPermission, ...]:
    """The permissions for `WHOLE`, `STREAMED` or `ASYNCHRONOUS`.

    The action is needed on the endpoint, and on the inference component that the request names.
    `tags_of` returns the tags of the resource with an ARN.

    Source: the Service Authorization Reference (resource types and `sagemaker:TargetModel`),
    "Security with multi-container endpoints with direct invocation" (the container's key).
    """
    arns = [scope.arn("endpoint", target.endpoint)]
    arns += [scope.arn("inference-component", target.component)] if target.component else []
    given = {
        "sagemaker:targetmodel": target.model,
        "sagemaker:targetcontainerhostname": target.container,
    }
    keys: dict[str, Values] = {name: (value,) for name, value in given.items() if value}
    return tuple(
        NeededPermission(
            action=f"sagemaker:{operation}",
            resource=arn,
            context={
                "aws:requestedregion": (scope.region,),
                **build_resource_keys(arn, tags_of(arn), scope.account),
                **keys,
            },
        )
        for arn in arns
    )
