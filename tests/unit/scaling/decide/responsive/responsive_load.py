"""Series of load for tests of the responsive policy, and a run of the policy over a series."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.decision import Capacity, Decision
from hostelry.scaling.decide.responsive.options import ResponsiveOptions
from hostelry.scaling.decide.responsive.policy import ResponsiveState, step
from hostelry.sim.arrivals import modulate_arrivals

KEY = LoadKey(scope=Scope("000000000000", "us-west-2"), endpoint_name="chat", variant_name="main")
START = 1_700_000_000
SERVICE_S = 4.0


def load(second: int, **values: float) -> SecondLoad:
    """A second of load for KEY, `second` seconds after START."""
    return SecondLoad(key=KEY, second=START + second, **values)  # type: ignore[arg-type]


def even(
    num_seconds: int, per_s: int, service_s: float = SERVICE_S, first: int = 0
) -> list[SecondLoad]:
    """Equal numbers of calls each second, with equal durations."""
    return [
        load(
            first + number,
            arrivals=per_s,
            finished=per_s,
            service_s=per_s * service_s,
            in_flight_mean=per_s * service_s,
            in_flight_max=int(per_s * service_s),
        )
        for number in range(num_seconds)
    ]


def drawn(
    seed: int, pieces: Sequence[tuple[float, float]], cv: float = 1.0, service_s: float = SERVICE_S
) -> list[SecondLoad]:
    """Random arrivals in pieces (seconds, rate), with widely spread service times."""
    source = np.random.default_rng(seed)
    lasts = np.array([it for it, _ in pieces])
    edges = np.concatenate([[0.0], np.cumsum(lasts)])
    at_s = modulate_arrivals(source, edges, np.array([rate for _, rate in pieces]), cv)
    took_s = source.lognormal(np.log(service_s) - 0.32, 0.8, len(at_s))
    num = int(edges[-1])
    ends_s = at_s + took_s
    done = ends_s < num
    arrivals = np.bincount(at_s.astype(int), minlength=num)
    finished = np.bincount(ends_s[done].astype(int), minlength=num)
    seconds_of_service = np.bincount(ends_s[done].astype(int), took_s[done], num)
    middles = np.arange(num) + 0.5
    under_way = np.searchsorted(at_s, middles) - np.searchsorted(np.sort(ends_s), middles)
    columns = zip(
        arrivals.tolist(),
        finished.tolist(),
        seconds_of_service.tolist(),
        under_way.tolist(),
        strict=True,
    )
    return [
        load(it, arrivals=a, finished=f, service_s=s, in_flight_mean=float(c), in_flight_max=c)
        for it, (a, f, s, c) in enumerate(columns)
    ]


@dataclass(slots=True, kw_only=True)
class Run:
    """Runs the policy over seconds. Its decisions become capacity, which serves at once."""

    options: ResponsiveOptions
    copies: int = 4
    minimum: int = 1
    maximum: int = 1000
    serving: int | None = None
    state: ResponsiveState | None = None
    acts: list[tuple[int, Decision]] = field(default_factory=list)

    def see(self, seconds: Sequence[SecondLoad], *, follow: bool = True) -> "Run":
        """Step through `seconds`. With `follow`, capacity follows the decisions."""
        state = self.state or ResponsiveState(options=self.options)
        for one in seconds:
            serving = self.copies if self.serving is None else self.serving
            capacity = Capacity(
                desired=self.copies, serving=serving, minimum=self.minimum, maximum=self.maximum
            )
            state, decision = step(state, one, capacity, one.second + 1.0)
            if decision is not None:
                self.acts.append((one.second - START, decision))
                if follow:
                    self.copies = decision.desired
        self.state = state
        return self

    def moved(self, **changes: object) -> "Run":
        """The same target with other bounds or copies."""
        return replace(self, **changes)  # type: ignore[arg-type]
