"""Components with one queue of requests: asynchronous endpoints, serverless variants."""

from hostelry.domain.load import LoadKey
from hostelry.domain.serverless import ServerlessConfig
from hostelry.scaling.decide.wake import (
    EnvironmentUse,
    count_environments,
    list_ended_environments,
)
from hostelry.sim.component import ComponentDeps, SimulatedComponent
from hostelry.sim.copies import SimulatedAnswer, SimulatedCopy, SimulatedRequest
from hostelry.sim.ledger import RequestFate

IDLE_S = 600.0  # `hostelry up --serverless-idle-s`


def _ignore_held(component: SimulatedComponent, held: int) -> None:
    """Wake nothing: the queue's own metrics do."""


class QueuedComponent(SimulatedComponent):
    """Requests start in the order of arrival, once a copy has a free slot.

    Args:
        model: its position among the components.
        key: the name of its loads.
        deps: the parts that all components share.
        begins_at: the wall time of second 0.
    """

    def __init__(self, model: int, key: LoadKey, deps: ComponentDeps, begins_at: float) -> None:
        super().__init__(model, key, deps, begins_at, _ignore_held)

    def arrive(self, asked: SimulatedRequest, session: int, now_s: float) -> None:
        """A request: to a copy with a free slot, else to the end of the queue."""
        self.meter.count_arrival(now_s)
        self._hold(asked, now_s)
        self._serve_held(now_s)

    def advance(self, copy: SimulatedCopy, now_s: float) -> None:
        """Answer the requests that have ended on a copy, and start the next ones."""
        super().advance(copy, now_s)
        self._serve_held(now_s)

    def _serve_held(self, now_s: float) -> None:
        while self.held:
            copy = self._find_free()
            if copy is None:
                return
            asked = self.held.popleft()
            is_late = now_s > asked.arrived_s
            self._begin(copy, asked._replace(delayed=is_late), now_s)

    def _find_free(self) -> SimulatedCopy | None:
        """The copy with the fewest requests, if it has a free slot."""
        if not self.serving:
            return None
        place = min(range(len(self.outstanding)), key=self.outstanding.__getitem__)
        copy = self.serving[place]
        return copy if copy.outstanding < copy.at_once else None


class ServerlessComponent(QueuedComponent):
    """Environments of a serverless variant: one starts per request that finds none free.

    Args:
        model: its position among the components.
        key: the name of its loads.
        deps: the parts that all components share.
        begins_at: the wall time of second 0.
        config: the limits of the variant.
    """

    def __init__(
        self,
        model: int,
        key: LoadKey,
        deps: ComponentDeps,
        begins_at: float,
        config: ServerlessConfig,
    ) -> None:
        super().__init__(model, key, deps, begins_at)
        self._config = config
        self._used_s: dict[str, float] = {}
        self.billed_s = 0.0

    def arrive(self, asked: SimulatedRequest, session: int, now_s: float) -> None:
        """A request: to a free environment or a new one, or throttled."""
        if self.meter.in_flight >= self._config.max_concurrency:
            self.meter.count_arrival(now_s)
            self._fail(asked, RequestFate.THROTTLED, now_s)
            return
        super().arrive(asked, session, now_s)
        wanted = count_environments(self.meter.in_flight, self.desired, self._config)
        if wanted > self.desired:
            self.want(wanted, now_s)

    def ready(self, copy: SimulatedCopy, now_s: float) -> None:
        """An environment has come up."""
        self._used_s[copy.id] = now_s
        self._deps.timeline.at(now_s + IDLE_S, self._end_idle)
        super().ready(copy, now_s)

    def _begin(self, copy: SimulatedCopy, asked: SimulatedRequest, now_s: float) -> None:
        self._used_s[copy.id] = now_s
        super()._begin(copy, asked, now_s)

    def _end(self, copy: SimulatedCopy, it: SimulatedAnswer, now_s: float) -> None:
        self._used_s[copy.id] = now_s
        self.billed_s += it.service_s
        self._deps.timeline.at(now_s + IDLE_S, self._end_idle)
        super()._end(copy, it, now_s)

    def _end_idle(self, now_s: float) -> None:
        """End the environments that have been idle for too long."""
        uses = [
            EnvironmentUse(
                copy_id=copy.id, used_at=now_s if copy.outstanding else self._used_s[copy.id]
            )
            for copy in self.serving
        ]
        ended = set(list_ended_environments(uses, (), self._config, IDLE_S, now_s))
        for copy in [it for it in self.serving if it.id in ended]:
            del self._used_s[copy.id]
            self.desired -= 1
            self._leave(copy, now_s)
