"""A trace against a deployment and its policies, on a virtual clock.

The platform's own code decides: `scaling`, `placement` and `routing`. The rest is modelled: how
long requests and starts take (`sim.service`), and their measurement. One seed and one trace give
one outcome, bit for bit, whatever the process.
"""

import hashlib
import math
import random
from collections.abc import Callable, Mapping

import msgspec
import numpy as np
from msgspec.structs import replace

from hostelry.base.errors import TerminalError
from hostelry.domain.load import LoadKey
from hostelry.domain.scaling import ScheduledAction
from hostelry.domain.serverless import ServerlessConfig
from hostelry.domain.shape import Requirements
from hostelry.scaling.decide.schedule import find_next_due
from hostelry.sim.component import ComponentDeps, SimulatedComponent
from hostelry.sim.controllers import (
    AwsController,
    Controller,
    KnativeController,
    RayServeController,
    ResponsiveController,
)
from hostelry.sim.copies import NEVER, SimulatedCopy, SimulatedRequest, Timeline
from hostelry.sim.fleet import SimulatedDeployment, SimulatedFleet
from hostelry.sim.ledger import ReplayLedger
from hostelry.sim.multi_model import ModelRoom, MultiModelComponent
from hostelry.sim.peers import KnativeRule
from hostelry.sim.policy_requests import SCOPE, PolicySet
from hostelry.sim.queued import QueuedComponent, ServerlessComponent
from hostelry.sim.service import ServiceModel
from hostelry.sim.target import SimulatedTarget
from hostelry.sim.trace import Block, FloatArray, Trace

ENDPOINT = "replay"
VARIANT = "AllTraffic"
DRAIN_S = 86_400.0  # how long after the trace's end the last answers are waited for
PROGRESS_EVERY = 50_000

Progress = Callable[[int, float], None]


def no_progress(num_requests: int, at_s: float) -> None:
    """Report no progress."""


class ReplayedModel(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one model of a trace. None: as the setup."""

    service: ServiceModel | None = None
    requirements: Requirements | None = None
    policies: PolicySet | None = None


AS_ALL = ReplayedModel()


class ReplaySetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace is replayed against.

    `models` has, by a name of the trace, what differs for it: for BASE the copies of BASE/ADAPTER,
    for BASE/ADAPTER the time of its requests. With `serverless` every component has environments.
    With `room` copies load and unload models. With `is_queued` requests wait in one queue for a
    copy, as asynchronous requests do.
    """

    policies: PolicySet
    deployment: SimulatedDeployment = msgspec.field(default_factory=SimulatedDeployment)
    service: ServiceModel
    seed: int = 1
    models: Mapping[str, ReplayedModel] = msgspec.field(default_factory=dict)
    serverless: ServerlessConfig | None = None
    room: ModelRoom | None = None
    is_queued: bool = False

    def get_model(self, name: str) -> ReplayedModel:
        """What differs for a model, or for the base that it names."""
        base = name.partition("/")[0]
        return self.models.get(name) or self.models.get(base) or AS_ALL

    def get_service(self, name: str) -> ServiceModel:
        """How fast a model's requests are answered, and its copies start."""
        return self.get_model(name).service or self.service


class ScaledComponent(msgspec.Struct, kw_only=True):
    """A component with what scales it."""

    component: SimulatedComponent
    service: ServiceModel
    policies: PolicySet
    target: SimulatedTarget
    controllers: list[Controller]
    aws: AwsController | None
    needs_quiet: bool


class Replay:
    """One run.

    Args:
        trace: what arrives.
        setup: against what.
        progress: called now and then with the requests so far, and the second of the trace.
    """

    def __init__(self, trace: Trace, setup: ReplaySetup, progress: Progress = no_progress) -> None:
        self._trace = trace
        self._setup = setup
        self._progress = progress
        self._begins_at = trace.begins_at
        self._timeline = Timeline()
        self.ledger = ReplayLedger()
        self.ended_s = 0.0
        source = random.Random(setup.seed)
        self.fleet = SimulatedFleet(
            setup.deployment,
            setup.service.instance_start_s,
            self._timeline,
            random.Random(source.random()),
            self,
        )
        self._deps = ComponentDeps(
            deployment=setup.deployment,
            timeline=self._timeline,
            fleet=self.fleet,
            ledger=self.ledger,
            source=random.Random(source.random()),
        )
        self._factor_source = np.random.default_rng(setup.seed)
        self.scaled: list[ScaledComponent] = []
        self._bases: dict[str, int] = {}
        self._served_by: list[int] = []  # by model of the trace: the component that serves it
        self._services: list[ServiceModel] = []  # by model of the trace
        self._busy: set[int] = set()  # components with requests in this second, or in flight
        self._watched: set[int] = set()  # components whose rule also needs seconds without any
        self._next_second_s = 1.0
        self._open = True

    def run(self) -> ReplayLedger:
        """Let everything of the trace arrive, and wait until all of it has ended."""
        self._know_models()
        last_s = 0.0
        for block in self._trace.blocks:
            self._know_models()
            self._take(block)
            last_s = float(block.at_s[-1]) if len(block) else last_s
            self._progress(self.ledger.num_arrived, last_s)
        self.ended_s = max(last_s, self._trace.lasts_s or 0.0)
        self._pass(self.ended_s)
        self.fleet.end_usage(self.ended_s)
        self._drain()
        return self.ledger

    def handle_placed(self, copy: SimulatedCopy, now_s: float) -> None:
        """A copy has a place."""
        self.scaled[copy.model].component.handle_placed(copy, now_s)

    def ready(self, copy: SimulatedCopy, now_s: float) -> None:
        """A copy has come up."""
        self.scaled[copy.model].component.ready(copy, now_s)

    def digest(self) -> str:
        """A hash of all requests and acts, to the last bit."""
        ledger, found = self.ledger, hashlib.blake2b(digest_size=16)
        for column in (ledger.arrived_s, ledger.took_s, ledger.first_token_s, ledger.fate):
            found.update(column.tobytes())
        for act in ledger.acts:
            columns = (act.model, act.by, act.decided_s.hex(), act.from_copies, act.to_copies)
            found.update(repr(columns).encode())
        found.update(self.fleet.instance_s.hex().encode())
        return found.hexdigest()

    def _know_models(self) -> None:
        """Have a component for each model known by now. BASE's copies serve BASE/ADAPTER."""
        names = self._trace.models
        for model in range(len(self._served_by), len(names)):
            base = names[model].partition("/")[0]
            if base not in self._bases:
                place = self._bases[base] = len(self.scaled)
                self.ledger.ensure_models(place + 1)
                self.scaled.append(self._component(place, base))
                if self.scaled[place].needs_quiet:
                    self._watched.add(place)
                self._begin(self.scaled[place])
            self._served_by.append(self._bases[base])
            self._services.append(self._setup.get_service(names[model]))

    def _component(self, model: int, name: str) -> ScaledComponent:
        setup, begins_at = self._setup, self._begins_at
        key = LoadKey(
            scope=SCOPE, endpoint_name=ENDPOINT, variant_name=VARIANT, component_name=name
        )
        component = self._build_component(model, key)
        service, given = setup.get_service(name), setup.get_model(name)
        self.fleet.add_model(service, given.requirements)
        policies = given.policies or setup.policies
        pace = setup.deployment.pace
        target = SimulatedTarget(component, policies, self.ledger, begins_at, pace)
        now = begins_at + self._timeline.now_s
        aws = AwsController(target, policies, now, pace) if policies.policies else None
        controllers: list[Controller] = [] if aws is None else [aws]
        if policies.responsive is not None:
            is_tracked = any(it.tracking is not None for it in policies.policies)
            controllers.append(
                ResponsiveController(target, policies.responsive, is_tracked=is_tracked)
            )
        if isinstance(policies.rule, KnativeRule):
            controllers.append(KnativeController(target, policies.rule))
        elif policies.rule is not None:
            controllers.append(RayServeController(target, policies.rule))
        return ScaledComponent(
            component=component,
            service=service,
            policies=policies,
            target=target,
            controllers=controllers,
            aws=aws,
            needs_quiet=any(it.needs_quiet for it in controllers),
        )

    def _build_component(self, model: int, key: LoadKey) -> SimulatedComponent:
        setup = self._setup
        if setup.serverless is not None:
            return ServerlessComponent(model, key, self._deps, self._begins_at, setup.serverless)
        if setup.room is not None:
            return MultiModelComponent(
                model, key, self._deps, self._begins_at, self._wake, setup.room
            )
        if setup.is_queued:
            return QueuedComponent(model, key, self._deps, self._begins_at)
        return SimulatedComponent(model, key, self._deps, self._begins_at, self._wake)

    def _begin(self, scaled: ScaledComponent) -> None:
        """Give a component its first copies, and plan what looks at it."""
        policies, timeline = scaled.policies, self._timeline
        first = scaled.target.capacity.clamp(self._setup.deployment.initial_copies)
        if timeline.now_s == 0.0:
            scaled.component.desired = first
            self.fleet.start_at_once(scaled.component.model, first)
        else:
            scaled.component.want(first, timeline.now_s)
        if scaled.aws is not None:
            self._plan_look(scaled)
        for action in policies.schedules:
            self._plan_firing(scaled, action, self._begins_at + timeline.now_s)

    def _take(self, block: Block) -> None:
        """Let a block's requests arrive, and all that happens meanwhile."""
        timeline, ledger, busy = self._timeline, self.ledger, self._busy
        scaled, events = self.scaled, self._timeline.events
        served_by = self._served_by
        first, work = self._get_work(block)
        for at_s, first_s, work_s, of, session in zip(
            block.at_s.tolist(),
            first.tolist(),
            work.tolist(),
            block.model.tolist(),
            block.session.tolist(),
            strict=True,
        ):
            if self._next_second_s <= at_s or (events and events[0][0] <= at_s):
                self._pass(at_s)
            timeline.now_s = at_s
            ledger.num_arrived = number = ledger.num_arrived + 1
            model = served_by[of]
            busy.add(model)
            offered_s, offered_work_s = ledger.offered[model]
            offered_s.append(at_s)
            offered_work_s.append(work_s)
            asked = SimulatedRequest(at_s, first_s, work_s, number, of=of)
            scaled[model].component.arrive(asked, session, at_s)
            if number % PROGRESS_EVERY == 0:
                self._progress(number, at_s)

    def _get_work(self, block: Block) -> tuple[FloatArray, FloatArray]:
        """Seconds alone until the first and the last token of a block's requests."""

        def by_model(name: str) -> FloatArray:
            return np.array([getattr(it, name) for it in self._services])[block.model]

        token_s = by_model("token_s")
        read_s = block.input_tokens * by_model("prefill_s_per_token")
        first = by_model("prefill_s") + token_s + read_s
        last = first + (block.output_tokens - 1).clip(min=0) * token_s
        if any(it.spread for it in self._services):
            factors = self._draw_factors(block)
            return first * factors, last * factors
        return first, last

    def _draw_factors(self, block: Block) -> FloatArray:
        """A factor of the work of each request, by the spread of its model."""
        shares = self._factor_source.random(len(block))
        factors = np.ones(len(block))
        for model in np.unique(block.model).tolist():
            points = np.array(self._services[model].spread)
            if len(points):
                mine = block.model == model
                factors[mine] = np.interp(shares[mine], points[:, 0], points[:, 1])
        return factors

    def _pass(self, until_s: float) -> None:
        """Let everything happen that does until then, `until_s` included."""
        timeline = self._timeline
        events, scaled = timeline.events, self.scaled
        while True:
            next_s = events[0][0] if events else NEVER
            second_s = self._next_second_s
            if second_s <= until_s and second_s <= next_s:
                self._second(second_s)
                continue
            if next_s > until_s:
                break
            event = timeline.pop()
            now_s = timeline.now_s
            if type(event) is SimulatedCopy:
                if event.wakes_s == now_s:
                    event.wakes_s = NEVER
                    scaled[event.model].component.advance(event, now_s)
            else:
                event(now_s)  # type: ignore[operator]
        timeline.now_s = max(timeline.now_s, until_s if until_s < NEVER else timeline.now_s)

    def _second(self, now_s: float) -> None:
        """Close a second: controllers get the loads."""
        self._timeline.now_s = max(self._timeline.now_s, now_s)
        self._next_second_s = now_s + 1.0
        now = self._begins_at + now_s
        for place in sorted(self._busy | self._watched):
            scaled = self.scaled[place]
            if not scaled.needs_quiet and scaled.component.is_quiet:
                self._busy.discard(place)
                continue
            load = scaled.component.second(now_s)
            for controller in scaled.controllers:
                controller.second(load, now)

    def _plan_look(self, scaled: ScaledComponent) -> None:
        aws = scaled.aws
        assert aws is not None, "only AWS's policies have alarms"

        def look(now_s: float) -> None:
            if self._open:
                aws.look(self._begins_at + now_s)
                self._timeline.at(aws.next_at - self._begins_at, look)

        if aws.next_at < math.inf:
            self._timeline.at(aws.next_at - self._begins_at, look)

    def _plan_firing(self, scaled: ScaledComponent, action: ScheduledAction, after: float) -> None:
        at = find_next_due(replace(action, created_at=self._begins_at), after)
        if at is None:
            return

        def fire(now_s: float) -> None:
            scaled.target.fire(action, self._begins_at + now_s)
            if self._open:
                self._plan_firing(scaled, action, at)

        self._timeline.at(at - self._begins_at, fire)

    def _wake(self, component: SimulatedComponent, held: int) -> None:
        """Wake for requests that wait, again each time that twice as many do."""
        if held & (held - 1) == 0:
            target = self.scaled[component.model].target
            target.wake(held, self._begins_at + self._timeline.now_s)

    def _drain(self) -> None:
        """After the trace's end: wait for the requests under way, which cost nothing any more."""
        self._open = False
        until_s = self.ended_s + DRAIN_S
        while len(self.ledger.fate) < self.ledger.num_arrived:
            events = self._timeline.events
            if not events or events[0][0] > until_s:
                left = self.ledger.num_arrived - len(self.ledger.fate)
                raise TerminalError(
                    f"{left} requests have not ended {DRAIN_S:g} s after the trace: "
                    "the copies allowed cannot carry it; raise MaxCapacity, or the time limits"
                )
            self._pass(events[0][0])
