"""Waits for an endpoint or a component to come into service, or to be gone."""

from collections.abc import Callable
from typing import Any

from hostelry.base.errors import TerminalError
from hostelry.cli.declared.aws import Aws, AwsError
from hostelry.cli.declared.document import SAGEMAKER
from hostelry.cli.declared.resource import ResourceKey, ResourceKind
from hostelry.cli.declared.step import Until

Pause = Callable[[float], None]
"""Returns after so many seconds; raises where the wait is to end."""
Waiting = Callable[[ResourceKey, str], None]
"""Called with each status that is seen."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
FINAL = ("InService", "Failed")


def described(aws: Aws, key: ResourceKey) -> dict[str, Any] | None:
    """The description of an endpoint or a component; None where it is gone."""
    if key.kind is ResourceKind.ENDPOINT:
        call = "DescribeEndpoint", {"EndpointName": key.name}
    else:
        call = "DescribeInferenceComponent", {"InferenceComponentName": key.name}
    try:
        return aws.call(SAGEMAKER, *call)
    except AwsError as error:
        if error.is_absence:
            return None
        raise


def status_of(found: dict[str, Any]) -> str:
    """EndpointStatus or InferenceComponentStatus."""
    status: str = found.get("EndpointStatus") or found["InferenceComponentStatus"]
    return status


def wait_until(
    aws: Aws, key: ResourceKey, until: Until, pause: Pause, waiting: Waiting, *, strict: bool = True
) -> None:
    """Return once `key` is in a final status, or gone.

    Raises TerminalError where it fails, and, where `strict`, for the reason that its last update
    was taken back for.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        found = described(aws, key)
        if found is None:
            if until is Until.GONE:
                return
            raise TerminalError(f"{key} was deleted meanwhile")
        status = status_of(found)
        waiting(key, status)
        if status in FINAL and not (until is Until.GONE and status == "InService"):
            break
        pause(pause_s)
        pause_s = min(pause_s * 1.3, LONGEST_PAUSE_S)
    reason = found.get("FailureReason", "")
    if status == "Failed" or until is Until.GONE or (strict and reason):
        raise TerminalError(f"{key} is {status}: {reason or 'no reason is given'}")
