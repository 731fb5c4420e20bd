"""Fixtures of inference experiments."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.contract.api.rig import Api
from tests.contract.api.sagemaker.experiments.requests import PRODUCTION, TRIAL, Call

from hostelry.base.clock import ManualClock
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.inference_experiment import ExperimentStatus, InferenceExperiment
from hostelry.domain.scope import Scope
from hostelry.reconcile.inference_experiments import InferenceExperiments
from hostelry.store.records import State


@pytest.fixture
def models(api: Api) -> None:
    for name in ("v1", "v2", "v3"):
        api.make.model(name)


@pytest.fixture
def serving(models: None, api: Api) -> None:
    """The endpoint "e" with the variant "main", in service."""
    api.make.endpoint("e", PRODUCTION)
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)


@pytest.fixture
def create(api: Api) -> Callable[..., dict[str, Any]]:
    return lambda **more: api.call(
        "CreateInferenceExperiment",
        **{key: value for key, value in {**TRIAL, **more}.items() if value is not None},
    )


@pytest.fixture
def describe(api: Api) -> Callable[..., dict[str, Any]]:
    return lambda name="trial": api.call("DescribeInferenceExperiment", Name=name)


@pytest.fixture
def look(state: State, clock: ManualClock) -> Callable[..., None]:
    """`look(times)` runs control's reconciler of experiments."""
    reconciler = InferenceExperiments(state, clock, dict)

    def look(times: int = 1) -> None:
        for _ in range(times):
            reconciler.loop.one_pass()

    return look


@pytest.fixture
def turn(state: State, scope: Scope) -> Callable[..., None]:
    """`turn(**fields)` changes the experiment "trial" as a reconciler does."""

    def turn(**fields: Any) -> None:
        found = state.inference_experiments.get(scope, "trial")
        assert found is not None
        state.inference_experiments.put(
            scope, "trial", replace(found.value, **fields), expect=found.version
        )

    return turn


@pytest.fixture
def stored(state: State, scope: Scope) -> Callable[[], InferenceExperiment]:
    def stored() -> InferenceExperiment:
        found = state.inference_experiments.get(scope, "trial")
        assert found is not None
        return found.value

    return stored


@pytest.fixture
def running(
    serving: None, create: Call, look: Callable[..., None], turn: Callable[..., None], api: Api
) -> None:
    """A running experiment. No copies start here, so its status is written."""
    create()
    look(5)
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)
    turn(status=ExperimentStatus.RUNNING, deadline_at=None)
