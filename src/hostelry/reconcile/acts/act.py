"""An act of the operator, decided but not recorded yet."""

from collections.abc import Mapping
from enum import Enum

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.domain.copy import Instance
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.hidden_endpoint import HiddenKind, find_hidden_kind, get_job_name
from hostelry.reconcile.plan.endpoint_state import SERVING_ENDPOINT, EndpointState

# The words for each kind of job, and the operation that stops it.
JOB_KINDS: Mapping[HiddenKind, tuple[str, str]] = {
    HiddenKind.TRANSFORM: ("transform job", "StopTransformJob"),
    HiddenKind.RECOMMENDATION: (
        "inference recommendations job",
        "StopInferenceRecommendationsJob",
    ),
    HiddenKind.AI_RECOMMENDATION: ("AI recommendation job", "StopAIRecommendationJob"),
}


class Way(Enum):
    """The way in which a copy is replaced."""

    BESIDE = "beside"  # the new copy serves first
    ENDED_FIRST = "ended_first"  # no room for both: capacity is less by this copy meanwhile
    NEW_INSTANCE = "new_instance"  # another instance comes up for it
    STAYS = "stays"  # it fits nowhere else now, and serves on until it does


class ActStep(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of an act on one copy. `text` describes the effect for people."""

    copy: str
    owner: str
    instance: str
    way: Way
    text: str


class PlannedAct(msgspec.Struct, frozen=True, kw_only=True):
    """The effects of an act, and the record that asks for it (None: it is asked for already)."""

    act: str
    target: str
    endpoint: str
    summary: str
    steps: tuple[ActStep, ...] = ()
    record: Endpoint | Instance | None


def get_serving_endpoint(state: EndpointState) -> Endpoint:
    """The endpoint, if acts may change it now. Raises ServiceError, 404 or 409, otherwise."""
    endpoint = state.endpoint
    if endpoint is None:
        raise report_unknown("The endpoint does not exist any more.")
    kind = find_hidden_kind(endpoint.name)
    if kind is not None:
        what, stop = JOB_KINDS[kind]
        raise refuse_act(
            f"It belongs to the {what} {get_job_name(endpoint.name)}, which is finished when its "
            f"instances end: stop the job with {stop} instead."
        )
    if endpoint.status not in SERVING_ENDPOINT:
        raise refuse_act(
            f"Endpoint {endpoint.name} is {endpoint.status.value}, and does not serve."
        )
    if endpoint.pending is not None or endpoint.bake is not None:
        raise refuse_act(
            f"Endpoint {endpoint.name} is being updated, which replaces its copies and instances: "
            "try again once it is InService."
        )
    return endpoint


def refuse_act(message: str) -> ServiceError:
    """An error for an act that the present state does not allow."""
    return ServiceError("ActRefused", message, 409)


def report_unknown(message: str) -> ServiceError:
    """An error for a name that nothing has."""
    return ServiceError("NotFound", message, 404)
