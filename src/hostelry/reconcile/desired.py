"""Desired state of a name by the records, which are a moment ahead of the routes.

a name                                                        result
-----------------------------------------------------------   ------
an endpoint InService or Updating                             True
a component on such an endpoint, InService or Updating, and
... its base desires copies                                   True
... a waiting request may start a copy (`wakeable`)           True
any other                                                     False
"""

from hostelry.domain.at_zero import Wakeable
from hostelry.domain.component import InferenceComponent
from hostelry.domain.load import LoadKey
from hostelry.domain.scaling import Dimension, target_name
from hostelry.domain.scope import Scope
from hostelry.reconcile.plan.endpoint_state import SERVING_COMPONENT, SERVING_ENDPOINT
from hostelry.scaling.decide.wake import wakeable
from hostelry.store.records import State


def has_desired_copies(state: State, key: LoadKey) -> bool:
    """Whether copies of what `key` names are desired, or a request may start one.

    An empty endpoint name stands for the endpoint that the component is on.
    """
    if key.component_name is None:
        return _serves(state, key.scope, key.endpoint_name)
    found = state.components.get(key.scope, key.component_name)
    if found is None or found.value.status not in SERVING_COMPONENT:
        return False
    endpoint_name = found.value.endpoint_name
    if key.endpoint_name not in ("", endpoint_name):
        return False
    return _serves(state, key.scope, endpoint_name) and _copies_may_come(state, found.value)


def _serves(state: State, scope: Scope, endpoint_name: str) -> bool:
    endpoint = state.endpoints.get(scope, endpoint_name)
    return endpoint is not None and endpoint.value.status in SERVING_ENDPOINT


def _copies_may_come(state: State, component: InferenceComponent) -> bool:
    base = component
    if component.adapter is not None:
        found = state.components.get(component.scope, component.adapter.base_name)
        if found is None:
            return False
        base = found.value
    if base.desired_copies > 0:
        return True
    name = target_name(f"inference-component/{base.name}", Dimension.COPIES)
    target = state.scalable_targets.get(base.scope, name)
    return wakeable(None if target is None else target.value) is Wakeable.YES
