"""Reconciler of inference experiments: load, plan, write one step.

A step writes either the experiment or its endpoint. The endpoint's own reconciler brings up what
the endpoint asks for. A kill between two writes loses nothing, because the next pass plans from the
records again.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.domain.endpoint_config import EndpointConfig
from hostelry.domain.inference_experiment import ExperimentStatus, InferenceExperiment
from hostelry.reconcile.job_loop import JobLoop
from hostelry.reconcile.plan.deployed import find_deployment_failure, list_up_instances
from hostelry.reconcile.plan.endpoint_state import EndpointState, GroupKey, InstanceFacts
from hostelry.reconcile.plan.experiment import (
    ExperimentFleet,
    ExperimentStep,
    next_experiment_step,
    select_shadow,
)
from hostelry.reconcile.record import load
from hostelry.reconcile.route_board import Snapshot
from hostelry.store.records import State, Versioned

# Only these look at copies, which are many.
CHANGES_ENDPOINT = frozenset({ExperimentStatus.STARTING, ExperimentStatus.STOPPING})


class InferenceExperiments:
    """The inference experiments of one control process, driven by `loop`.

    `facts` returns the facts about the instances' agents.
    """

    def __init__(
        self, state: State, clock: Clock, facts: Callable[[], Mapping[str, InstanceFacts]]
    ) -> None:
        self.loop: JobLoop[InferenceExperiment, Snapshot] = JobLoop(
            "inference experiments", state.inference_experiments, clock, self._drive
        )
        self._state = state
        self._facts = facts

    def _drive(self, stored: Versioned[InferenceExperiment], now: float) -> InferenceExperiment:
        state, experiment = self._state, stored.value
        key = GroupKey(experiment.scope, experiment.endpoint_name)
        with state.writing:
            found = state.endpoints.get(key.scope, key.endpoint_name)
            endpoint = None if found is None else found.value
            on_it = EndpointState(endpoint=endpoint)
            if experiment.status in CHANGES_ENDPOINT:
                on_it = load(state, key, self._facts()).state
            fleet = experiment_fleet(experiment, on_it, state.store.revision() + 1)
            if endpoint is None:
                is_taken = state.endpoints.has_name(key.scope, key.endpoint_name)
                fleet = replace(fleet, is_name_taken=is_taken)
            step = next_experiment_step(experiment, fleet, now)
            if step.experiment != experiment:
                state.inference_experiments.put(
                    experiment.scope, experiment.name, step.experiment, expect=stored.version
                )
            if step.endpoint is not None:
                self._write_endpoint(step, None if found is None else found.version)
        return step.experiment

    def _write_endpoint(self, step: ExperimentStep, version: int | None) -> None:
        """Write the endpoint, after its configuration."""
        endpoint, state = step.endpoint, self._state
        assert endpoint is not None, "only called with an endpoint"
        if step.config is not None:
            self._write_config(step.config)
        state.endpoints.put(endpoint.scope, endpoint.name, endpoint, expect=version)

    def _write_config(self, config: EndpointConfig) -> None:
        configs = self._state.endpoint_configs
        found = configs.get(config.scope, config.name)
        if found is None or found.value != config:
            expect = None if found is None else found.version
            configs.put(config.scope, config.name, config, expect=expect)


def experiment_fleet(
    experiment: InferenceExperiment, state: EndpointState, generation: int
) -> ExperimentFleet:
    """What there is of an experiment's endpoint."""
    endpoint = state.endpoint
    if endpoint is None:
        return ExperimentFleet(generation=generation)
    active = endpoint.active
    shadow = select_shadow(active)
    if shadow is None:
        left = state.hosts(active.generation, experiment.shadow_name)
        return ExperimentFleet(endpoint=endpoint, has_leftovers=bool(left), generation=generation)
    (variant,) = shadow.variants
    num_up = len(list_up_instances(state, shadow, variant))
    return ExperimentFleet(
        endpoint=endpoint,
        shadow_serves=num_up >= variant.desired_instance_count,
        shadow_failure=find_deployment_failure(state, shadow),
        generation=generation,
    )
