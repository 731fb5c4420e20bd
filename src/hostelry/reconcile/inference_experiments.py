"""Reconciler of inference experiments: load, plan, write one step.

A step writes either the experiment or its endpoint. The endpoint's own reconciler brings up what
the endpoint asks for. A kill between two writes loses nothing, because the next pass plans from the
records again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_woken
from hostelry.base.errors import Conflict
from hostelry.domain.endpoint_config import EndpointConfig
from hostelry.domain.inference_experiment import ExperimentStatus, InferenceExperiment
from hostelry.reconcile.plan.deployed import find_deployment_failure, list_up_instances
from hostelry.reconcile.plan.endpoint_state import EndpointState, GroupKey, InstanceFacts
from hostelry.reconcile.plan.experiment import (
    ExperimentFleet,
    ExperimentStep,
    next_experiment_step,
    select_shadow,
)
from hostelry.reconcile.record import load
from hostelry.store.records import State, Versioned

WATCH_S = 1.0  # from one look at experiments to the next
IDLE_S = 60.0  # without an experiment
REST_S = 0.1  # what changes meanwhile is looked at together
# Only these look at copies, which are many.
CHANGES_ENDPOINT = frozenset({ExperimentStatus.STARTING, ExperimentStatus.STOPPING})


class InferenceExperiments:
    """The inference experiments of one control process. `run` drives them until it is cancelled.

    `facts` returns the facts about the instances' agents.
    """

    def __init__(
        self, state: State, clock: Clock, facts: Callable[[], Mapping[str, InstanceFacts]]
    ) -> None:
        self._state = state
        self._clock = clock
        self._facts = facts
        self.woken = asyncio.Event()
        self._is_driving = False

    async def run(self) -> None:
        """Drive until cancelled: what changed once `woken` is set, and experiments each second."""

        def longest_s() -> float:
            return WATCH_S if self._is_driving else IDLE_S

        name, clock = "driving inference experiments", self._clock
        await run_woken(name, self._pass, self.woken, longest_s, REST_S, clock)

    async def _pass(self) -> None:
        self._is_driving = True  # unless the pass finds no experiment
        await asyncio.to_thread(self.one_pass)

    def one_pass(self) -> None:
        """Drive every experiment by one step.

        An experiment that changed meanwhile waits for the next pass. If some fail, the others are
        driven all the same, and one of the errors is raised.
        """
        stored = self._state.inference_experiments.list()
        driven = [it for it in stored if not it.value.is_over]
        self._is_driving = bool(driven)
        with contextlib.ExitStack() as each:
            for one in reversed(driven):
                each.callback(self._drive_unless_changed, one)

    def _drive_unless_changed(self, stored: Versioned[InferenceExperiment]) -> None:
        with contextlib.suppress(Conflict):
            self._drive(stored)

    def _drive(self, stored: Versioned[InferenceExperiment]) -> None:
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
            step = next_experiment_step(experiment, fleet, self._clock.now())
            if step.experiment != experiment:
                state.inference_experiments.put(
                    experiment.scope, experiment.name, step.experiment, expect=stored.version
                )
            if step.endpoint is not None:
                self._write_endpoint(step, None if found is None else found.version)

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
