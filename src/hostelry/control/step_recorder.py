"""Records the steps that deploy and change endpoints, from which operations are counted."""

import logging
from collections.abc import Mapping
from typing import Any

from hostelry.aws.call import ApiCall
from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.cost.steps import KINDS
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricWriter
from hostelry.metrics.sagemaker.usage import sample_step
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
COMPONENT_RESOURCE, ENDPOINT_RESOURCE = "inference-component", "endpoint"


class EndpointStepRecorder:
    """Emits a sample for each step.

    The step has been done by then, so that a sample that cannot be written is only logged.
    """

    def __init__(self, state: State, metrics: MetricWriter, clock: Clock) -> None:
        self._state = state
        self._metrics = metrics
        self._clock = clock

    def note_call(self, scope: Scope, call: ApiCall) -> None:
        """Record a successful call of the API, if it is a step."""
        if (call.service, call.operation) not in KINDS:
            return
        try:
            endpoint = self._find_endpoint(scope, call.params)
            self._emit(scope, endpoint, call.operation)
        except (HostelryError, OSError) as error:
            LOG.warning("the step %s was not recorded: %s", call.operation, error)

    def note_act(self, scope: Scope, endpoint: str, act: str) -> None:
        """Record an operator's act."""
        try:
            self._emit(scope, endpoint, act)
        except (HostelryError, OSError) as error:
            LOG.warning("the act %s was not recorded as a step: %s", act, error)

    def _emit(self, scope: Scope, endpoint: str, operation: str) -> None:
        samples = [it for _, it in sample_step(scope, endpoint, operation, self._clock.now())]
        self._metrics.emit(scope, samples)

    def _find_endpoint(self, scope: Scope, params: Mapping[str, Any]) -> str:
        """The endpoint that a call is about. Empty for a model or a configuration."""
        if "EndpointName" in params:
            return str(params["EndpointName"])
        kind, _, rest = str(params.get("ResourceId", "")).partition("/")
        if kind == ENDPOINT_RESOURCE:
            return rest.partition("/")[0]
        component = params.get("InferenceComponentName")
        if component is None and kind == COMPONENT_RESOURCE:
            component = rest
        found = None if component is None else self._state.components.get(scope, str(component))
        return "" if found is None else found.value.endpoint_name
