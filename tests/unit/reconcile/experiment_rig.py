"""A town with inference experiments. Tests move its reconcilers step by step."""

from typing import Any

from msgspec.structs import replace
from tests.unit.reconcile.samples import (
    IMAGE,
    NOW,
    SCOPE,
    Town,
    deployment,
    endpoint,
    model,
    variant,
)

from hostelry.domain.endpoint import Endpoint
from hostelry.domain.experiment_life import begin_stop, end_stop
from hostelry.domain.inference_experiment import (
    ExperimentStatus,
    ExperimentStop,
    ExperimentVariant,
    InferenceExperiment,
    VariantAction,
)
from hostelry.reconcile.inference_experiments import InferenceExperiments
from hostelry.store.protocol import Store

PRODUCTION = ExperimentVariant(
    name="AllTraffic", model_name="m", instance_type="ml.big", instance_count=1
)
SHADOW = ExperimentVariant(
    name="shadow", model_name="s", instance_type="ml.small", instance_count=1
)
HOUR_S = 3600.0


def experiment(**more: Any) -> InferenceExperiment:
    """A new experiment of an hour on "ep", which starts at once."""
    fields: dict[str, Any] = {
        "scope": SCOPE,
        "name": "trial",
        "arn": SCOPE.arn("inference-experiment", "trial"),
        "created_at": NOW,
        "modified_at": NOW,
        "status": ExperimentStatus.CREATING,
        "endpoint_name": "ep",
        "variants": (PRODUCTION, SHADOW),
        "models": {"AllTraffic": model("m", IMAGE), "shadow": model("s", "good")},
        "production_name": "AllTraffic",
        "shadow_name": "shadow",
        "percent": 50,
        "start_at": NOW,
        "end_at": NOW + HOUR_S,
        "deadline_at": NOW + 600,
    }
    return InferenceExperiment(**{**fields, **more})


class ExperimentTown:
    """A town, and control's reconciler of inference experiments."""

    def __init__(self, store: Store | None = None) -> None:
        self.town = Town(store=store)
        self.state = self.town.state
        self.restart()

    def restart(self) -> None:
        self.experiments = InferenceExperiments(self.state, self.town.clock, self.town.facts)

    def restart_control(self) -> None:
        """Restart control. Only its records survive."""
        self.town.restart_control()
        self.restart()

    def serve(self, **more: Any) -> None:
        """Create an endpoint with one variant, and wait until it is in service."""
        self.town.add(endpoint(deployment(variant(model="m", **more))))
        self.town.turn(20)

    def add(self, *experiments: InferenceExperiment) -> None:
        """Record new experiments, as CreateInferenceExperiment does."""
        for one in experiments or (experiment(),):
            self.state.inference_experiments.put(one.scope, one.name, one, expect=None)

    def change(self, name: str = "trial", **fields: Any) -> None:
        """Change an experiment's record, as an operation does."""
        self.put(replace(self.experiment(name), **fields))

    def put(self, changed: InferenceExperiment) -> None:
        found = self.state.inference_experiments.get(SCOPE, changed.name)
        assert found is not None
        records = self.state.inference_experiments
        records.put(SCOPE, changed.name, changed, expect=found.version)

    def stop(self, **more: Any) -> None:
        """Stop the experiment as StopInferenceExperiment does."""
        now = self.town.clock.now()
        end = end_stop if self.status() is ExperimentStatus.CREATED else begin_stop
        self.put(end(self.experiment(), ExperimentStop(at=now, **more), now))

    def promote(self, **more: Any) -> None:
        """Stop the experiment as StopInferenceExperiment does to promote the shadow."""
        remove, promote = VariantAction.REMOVE, VariantAction.PROMOTE
        self.stop(production=remove, shadow=promote, is_completed=True, **more)

    def turn(self, times: int = 1, *, seconds: float = 0.1) -> None:
        """Let both reconcilers and each instance take a step, `times` times."""
        for _ in range(times):
            self.experiments.loop.one_pass()
            self.town.turn(seconds=seconds)

    def experiment(self, name: str = "trial") -> InferenceExperiment:
        """The recorded experiment."""
        found = self.state.inference_experiments.get(SCOPE, name)
        assert found is not None
        return found.value

    def status(self) -> ExperimentStatus:
        return self.experiment().status

    @property
    def endpoint(self) -> Endpoint:
        return self.town.endpoint

    def production_copies(self) -> set[str]:
        """The copies that get requests."""
        route = self.town.find_endpoint_route()
        return {copy.id for one in (route.variants if route else ()) for copy in one.copies}

    def shadow_copies(self) -> set[str]:
        """The shadow's copies in the routes."""
        route = self.town.find_endpoint_route()
        shadow = None if route is None else route.shadow
        return set() if shadow is None else {copy.id for copy in shadow.copies}

    def mirrored(self) -> tuple[str, float, int] | None:
        """The shadow's name, share and number of copies in the routes."""
        route = self.town.find_endpoint_route()
        shadow = None if route is None else route.shadow
        return None if shadow is None else (shadow.name, shadow.share, len(shadow.copies))
