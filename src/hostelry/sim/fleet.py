"""The simulated deployment: instances, and the copies placed on them."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from hostelry.domain.at_zero import AtZero
from hostelry.domain.component import PlacementStrategy
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.shape import Requirements, Shape
from hostelry.placement.fleet_size import plan_growth
from hostelry.placement.pack import place
from hostelry.placement.values import CopyRequest, Held, Host, Placed, Pool
from hostelry.sim.copies import SimulatedCopy, Timeline
from hostelry.sim.service import ServiceModel

GIB = 2**30


class SimulatedDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's instances and copies. Raises ValueError for impossible values.

    `one_copy_an_instance` is a variant of models: policies scale its instances. `start_spread` is
    the deviation of the logarithm of start-up times. A request without a copy waits `hold_s`, and
    at most `max_held` of them wait. With COMPAT it fails at once. `idle_release_s` is how long an
    instance without a copy is kept. `pace` divides cooldowns and how long low alarms wait.
    """

    instance_type: str = "ml.m5.2xlarge"
    shape: Shape = msgspec.field(default_factory=lambda: Shape(cpus=8, memory_bytes=32 * GIB))
    requirements: Requirements = msgspec.field(
        default_factory=lambda: Requirements(min_memory_bytes=GIB, cpus=2.0)
    )
    one_copy_an_instance: bool = False
    min_instances: int = 0
    max_instances: int = 100
    initial_copies: int = 1
    placement: PlacementStrategy = PlacementStrategy.SPREAD
    routing: RoutingStrategy = RoutingStrategy.LEAST_OUTSTANDING_REQUESTS
    at_zero: AtZero = AtZero.HOLD
    hold_s: float = 60.0
    max_held: int = 1024
    start_spread: float = 0.15
    idle_release_s: float = 300.0
    pace: float = 1.0

    def __post_init__(self) -> None:
        bounds = {
            "min_instances": (0, self.max_instances),
            "max_instances": (1, 100_000),
            "initial_copies": (0, 1_000_000),
            "hold_s": (0.0, 86_400.0),
            "max_held": (0, 10_000_000),
            "start_spread": (0.0, 2.0),
            "idle_release_s": (0.0, 86_400.0),
            "pace": (0.1, 10_000.0),
        }
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and least <= value <= most):
                raise ValueError(f"{name} is {value}; it must be from {least:g} to {most:g}")


class Copies(Protocol):
    """Callbacks for the life of a copy."""

    def handle_placed(self, copy: SimulatedCopy, now_s: float) -> None:
        """A copy has a place, and comes up there."""
        ...

    def ready(self, copy: SimulatedCopy, now_s: float) -> None:
        """A copy has come up."""
        ...


class PlacedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model's copies: their times, and the reservation of each."""

    service: ServiceModel
    requirements: Requirements
    slowdowns: Sequence[float]


class SimulatedInstance(msgspec.Struct, kw_only=True):
    """An instance. `known` are the models that were started on it before."""

    host: Host
    began_s: float
    is_up: bool = False
    idle_since_s: float | None = None
    num_copies: int = 0
    known: set[int] = msgspec.field(default_factory=set)


class SimulatedFleet:
    """All instances and copies of the endpoint.

    Args:
        deployment: the instances and their settings.
        instance_start_s: how long an instance takes to come up.
        timeline: the events of their starts.
        source: of the spread of start-up times.
        copies: called for each copy.
    """

    def __init__(
        self,
        deployment: SimulatedDeployment,
        instance_start_s: float,
        timeline: Timeline,
        source: random.Random,
        copies: Copies,
    ) -> None:
        self.instance_s = 0.0
        self._deployment = deployment
        self._instance_start_s = instance_start_s
        self._timeline = timeline
        self._source = source
        self._copies = copies
        self._models: list[PlacedModel] = []
        self._instances: dict[str, SimulatedInstance] = {}
        self._held: dict[str, Held] = {}
        self._waiting: list[int] = []  # models of copies without a place
        self._num = 0
        self.peak_instances = 0
        for _ in range(deployment.min_instances):
            self._instance_up(self._new_instance(0.0), 0.0)

    def add_model(self, service: ServiceModel, requirements: Requirements | None) -> None:
        """Add the next model. `requirements` of None: those that the deployment has."""
        deployment = self._deployment
        if deployment.one_copy_an_instance:
            shape = deployment.shape
            requirements = Requirements(min_memory_bytes=shape.memory_bytes, cpus=shape.cpus)
        self._models.append(
            PlacedModel(
                service=service,
                requirements=requirements or deployment.requirements,
                slowdowns=service.slowdowns(),
            )
        )

    def num_waiting(self, model: int) -> int:
        """Copies of a model that have no place yet."""
        return self._waiting.count(model)

    def start(self, model: int, num: int, now_s: float) -> None:
        """Have `num` more copies of a model, on what there is or on new instances."""
        self._waiting += [model] * num
        self._place(now_s)

    def forget(self, model: int, num: int) -> int:
        """Take back up to `num` copies that have no place yet, and return their number."""
        taken = min(num, self.num_waiting(model))
        for _ in range(taken):
            self._waiting.remove(model)
        return taken

    def remove_copy(self, copy: SimulatedCopy, now_s: float) -> None:
        """A copy has left its instance."""
        del self._held[copy.id]
        instance = self._instances[copy.instance_id]
        instance.num_copies -= 1
        if not instance.num_copies:
            self._idle(instance, now_s)
        if self._waiting:
            self._place(now_s)

    def end_usage(self, now_s: float) -> None:
        """Count what instances there are until now."""
        for instance in self._instances.values():
            self.instance_s += now_s - instance.began_s

    def start_at_once(self, model: int, num: int) -> None:
        """Have copies that serve from the beginning, with the instances they need."""
        self._waiting += [model] * num
        self._place(0.0, at_once=True)

    def _place(self, now_s: float, *, at_once: bool = False) -> None:
        up = [it for it in self._instances.values() if it.is_up]
        self._place_copies(self._waiting, up, now_s, at_once=at_once)
        if not self._waiting or len(up) < len(self._instances):
            return  # those that are coming may be room enough
        deployment = self._deployment
        growth = plan_growth(
            [self._copy_request(it) for it in self._waiting],
            [Pool(instance_type=deployment.instance_type, shape=deployment.shape)],
            max_more=max(0, deployment.max_instances - len(self._instances)),
        )
        for _ in growth.instances:
            instance = self._new_instance(now_s)
            if at_once:
                instance.is_up = True
                continue
            up_s = now_s + self._spread(self._instance_start_s)
            self._timeline.at(up_s, _calling(self._instance_up, instance))
        if at_once and growth.instances:
            self._place(now_s, at_once=True)

    def _place_copies(
        self, models: list[int], up: list[SimulatedInstance], now_s: float, *, at_once: bool
    ) -> None:
        """Place the copies that fit. The others wait."""
        packing = place(
            [self._copy_request(it) for it in models], [it.host for it in up], self._held.values()
        )
        left: list[int] = []
        for model, outcome in zip(models, packing.outcomes, strict=True):
            if isinstance(outcome, Placed):
                self._begin(model, outcome, now_s, at_once=at_once)
            else:
                left.append(model)
        self._waiting = left

    def _begin(self, model: int, placed: Placed, now_s: float, *, at_once: bool) -> None:
        self._num += 1
        instance = self._instances[placed.instance_id]
        placed_model = self._models[model]
        name = f"c-{self._num:06}"
        copy = SimulatedCopy(name, model, placed.instance_id, placed_model.slowdowns)
        copy.placed_s = now_s
        self._held[copy.id] = Held(
            copy_id=copy.id,
            owner=str(model),
            instance_id=placed.instance_id,
            requirements=placed.requirements,
            device_ids=placed.device_ids,
        )
        instance.num_copies += 1
        instance.idle_since_s = None
        is_known = model in instance.known
        instance.known.add(model)
        self._copies.handle_placed(copy, now_s)
        if at_once:
            self._copies.ready(copy, now_s)
            return
        service = placed_model.service
        takes_s = self._spread(service.warm_start_s if is_known else service.cold_start_s)
        self._timeline.at(now_s + takes_s, lambda at_s: self._copies.ready(copy, at_s))

    def _new_instance(self, now_s: float) -> SimulatedInstance:
        self._num += 1
        name = f"i-{self._num:06}"
        deployment = self._deployment
        host = Host(
            instance_id=name, instance_type=deployment.instance_type, shape=deployment.shape
        )
        instance = self._instances[name] = SimulatedInstance(host=host, began_s=now_s)
        self.peak_instances = max(self.peak_instances, len(self._instances))
        return instance

    def _instance_up(self, instance: SimulatedInstance, now_s: float) -> None:
        instance.is_up = True
        if self._waiting:
            self._place(now_s)
        if not instance.num_copies:
            self._idle(instance, now_s)

    def _idle(self, instance: SimulatedInstance, now_s: float) -> None:
        instance.idle_since_s = now_s
        wait_s = 0.0 if self._deployment.one_copy_an_instance else self._deployment.idle_release_s
        self._timeline.at(now_s + wait_s, _calling(self._release, instance))

    def _release(self, instance: SimulatedInstance, now_s: float) -> None:
        """Let an instance go that has been idle for long enough, as IDLE_RELEASE does."""
        wait_s = 0.0 if self._deployment.one_copy_an_instance else self._deployment.idle_release_s
        since_s = instance.idle_since_s
        if since_s is None or now_s < since_s + wait_s:
            return
        is_there = instance.host.instance_id in self._instances
        if is_there and len(self._instances) > self._deployment.min_instances:
            self.instance_s += now_s - instance.began_s
            del self._instances[instance.host.instance_id]

    def _copy_request(self, model: int) -> CopyRequest:
        return CopyRequest(
            owner=str(model),
            requirements_by_type={self._deployment.instance_type: self._models[model].requirements},
            strategy=self._deployment.placement,
        )

    def _spread(self, mean_s: float) -> float:
        spread = self._deployment.start_spread
        return mean_s * self._source.lognormvariate(-spread * spread / 2, spread)


def _calling(
    call: Callable[[SimulatedInstance, float], None], instance: SimulatedInstance
) -> Callable[[float], None]:
    return lambda now_s: call(instance, now_s)
