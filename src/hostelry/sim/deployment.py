"""The simulated deployment: instances, what a copy takes of one, how requests reach copies."""

import math
from dataclasses import dataclass, field

from hostelry.domain.at_zero import AtZero
from hostelry.domain.component import PlacementStrategy
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.shape import Requirements, Shape

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDeployment:
    """An endpoint's instances and copies; raises ValueError for what cannot be.

    `one_copy_an_instance` is a variant of models: instances are what is scaled. `start_spread` is
    the deviation of the logarithm of start-up times. A request without a copy waits `hold_s`, and
    `max_held` of them at most; with COMPAT it fails at once. `idle_release_s` is how long an
    instance without a copy is kept. `pace` divides cooldowns and
    how long low alarms wait.
    """

    instance_type: str = "ml.m5.2xlarge"
    shape: Shape = field(default_factory=lambda: Shape(cpus=8, memory_bytes=32 * GIB))
    requirements: Requirements = field(
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
