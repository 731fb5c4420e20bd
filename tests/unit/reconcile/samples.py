"""Small values for plans, and a town: a store, a fake fleet, and a clock that tests move."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError
from hostelry.comparison.fleet_verdict import StepVerdict, WatchedUpdate
from hostelry.domain.at_zero import AtZero
from hostelry.domain.component import (
    AdapterSpec,
    ComponentSpec,
    ComponentStatus,
    InferenceComponent,
)
from hostelry.domain.copy import Copy, CopySpec, CopyStatus, Instance, InstanceState
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.endpoint_config import (
    EndpointConfig,
    InstancePool,
    ManagedInstanceScaling,
    ScaleInPolicy,
    ScaleInStrategy,
    Variant,
)
from hostelry.domain.model import ArtifactSource, Container, Model, SourceKind
from hostelry.domain.routes import ComponentRoute, EndpointRoute, RouteSnapshot
from hostelry.domain.scope import Scope, TagSet
from hostelry.domain.shape import Requirements, Shape
from hostelry.fleet.fake import FakeFleet, FakeSwitches
from hostelry.reconcile.census import CensusCounter, take_census
from hostelry.reconcile.instances import InstanceDriver
from hostelry.reconcile.plan.endpoint_state import (
    EndpointState,
    GroupKey,
    InstanceFacts,
    PlanContext,
)
from hostelry.reconcile.plan.plan import desired_by_instance
from hostelry.reconcile.plan.routes import WakeRules, plan_routes
from hostelry.reconcile.reconciler import reconcile_endpoint
from hostelry.reconcile.record import OwnWrites, list_keys, load_all
from hostelry.reconcile.route_planner import RoutePlanner
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Store
from hostelry.store.records import State, open_state

GB = 1024**3
SCOPE = Scope("111122223333", "us-west-2")
KEY = GroupKey(SCOPE, "ep")
NOW = 1_700_000_000.0
IMAGE = "djl-inference:0.29.0-lmi"
QUIET_PASSES = 8
SHAPES = {
    "ml.small": Shape(cpus=4, memory_bytes=16 * GB, accelerators=1),
    "ml.big": Shape(cpus=48, memory_bytes=192 * GB, accelerators=4),
}


def get_shape(instance_type: str) -> Shape:
    return SHAPES[instance_type]


def container(image: str = IMAGE) -> Container:
    return Container(image=image)


def variant(
    *,
    model: str | None = None,
    count: int = 1,
    instance_type: str = "ml.big",
    max_instances: int | None = None,
    min_instances: int = 1,
    consolidate: bool = False,
    pools: Sequence[str] = (),
    name: str = "AllTraffic",
) -> Variant:
    bounds = None
    if max_instances is not None:
        strategy = ScaleInStrategy.CONSOLIDATION if consolidate else ScaleInStrategy.IDLE_RELEASE
        bounds = ManagedInstanceScaling(
            enabled=True,
            min_instances=min_instances,
            max_instances=max_instances,
            scale_in=ScaleInPolicy(strategy=strategy),
        )
    return Variant(
        name=name,
        model_name=model,
        instance_type=pools[0] if pools else instance_type,
        initial_instance_count=count,
        scaling=bounds,
        pools=tuple(
            InstancePool(instance_type=it, priority=number) for number, it in enumerate(pools, 1)
        ),
        download_timeout_s=60.0,
        startup_timeout_s=60.0,
    )


def deployment(*variants: Variant, generation: int = 1, image: str = IMAGE) -> Deployment:
    config = EndpointConfig(
        scope=SCOPE,
        name=f"config-{generation}",
        arn=SCOPE.arn("endpoint-config", f"config-{generation}"),
        created_at=NOW,
        variants=variants,
        given={},
    )
    return Deployment(
        generation=generation,
        config=config,
        variants=tuple(
            EndpointVariant(
                variant=one,
                model=None if one.model_name is None else model(one.model_name, image),
                desired_instance_count=one.initial_instance_count,
                desired_weight=one.weight,
            )
            for one in variants
        ),
        started_at=NOW,
    )


def model(name: str, image: str = IMAGE, count: int = 1) -> Model:
    return Model(
        scope=SCOPE,
        name=name,
        arn=SCOPE.arn("model", name),
        created_at=NOW,
        containers=tuple(
            replace(container(image), hostname=f"container-{number}" if count > 1 else None)
            for number in range(1, count + 1)
        ),
        given={},
    )


def endpoint(active: Deployment, status: EndpointStatus = EndpointStatus.CREATING) -> Endpoint:
    return Endpoint(
        scope=SCOPE,
        name="ep",
        arn=SCOPE.arn("endpoint", "ep"),
        created_at=NOW,
        modified_at=NOW,
        status=status,
        active=active,
        given={},
    )


def needs(accelerators: float = 1, memory_gb: float = 1, cpus: float = 1) -> Requirements:
    return Requirements(min_memory_bytes=int(memory_gb * GB), cpus=cpus, accelerators=accelerators)


def component(
    name: str = "base",
    *,
    copies: int = 1,
    requirements: Requirements | None = None,
    image: str = IMAGE,
    generation: int = 1,
    status: ComponentStatus = ComponentStatus.CREATING,
) -> InferenceComponent:
    return InferenceComponent(
        scope=SCOPE,
        name=name,
        arn=SCOPE.arn("inference-component", name),
        endpoint_name="ep",
        variant_name="AllTraffic",
        created_at=NOW,
        modified_at=NOW,
        status=status,
        desired_copies=copies,
        spec=component_spec(requirements, image, generation),
        given={},
    )


def component_spec(
    requirements: Requirements | None = None, image: str = IMAGE, generation: int = 1
) -> ComponentSpec:
    return ComponentSpec(
        generation=generation,
        container=container(image),
        requirements=requirements or needs(),
        download_timeout_s=60.0,
        startup_timeout_s=60.0,
    )


def adapter_spec(uri: str = "s3://b/a.tar.gz", generation: int = 1) -> AdapterSpec:
    source = ArtifactSource(uri=uri, kind=SourceKind.ARCHIVE)
    return AdapterSpec(generation=generation, base_name="base", source=source)


def adapter(
    name: str = "spanish", *, uri: str = "s3://b/a.tar.gz", generation: int = 1
) -> InferenceComponent:
    return replace(component(name, copies=0), spec=None, adapter=adapter_spec(uri, generation))


class Town:
    """A platform that control drives. `turn` is one pass, and one step of every instance.

    Passes are compared with passes over everything: after each change of a record or of facts about
    instances, and otherwise every `QUIET_PASSES` passes, because time alone also makes passes due.
    """

    def __init__(self, *, store: Store | None = None, switches: FakeSwitches | None = None) -> None:
        self.clock = ManualClock(NOW)
        self.state: State = open_state(store or MemoryStore())
        self.fleet = FakeFleet(switches)
        self.switches = self.fleet.switches
        self.drivers: dict[str, InstanceDriver] = {}
        self.pace = 1.0
        self.watched_since = 0.0
        self.verdict_of: Callable[[WatchedUpdate], StepVerdict | None] = lambda _: None
        self._ids = itertools.count(1)
        self._last: dict[GroupKey, EndpointState] = {}
        self.planner = RoutePlanner(self.state, lambda image: image == IMAGE, AtZero.HOLD)
        self._counter = CensusCounter()
        self._loop = asyncio.new_event_loop()
        self._seen: object = None
        self._num_quiet = 0

    def close(self) -> None:
        self._loop.close()

    def context(self) -> PlanContext:
        return PlanContext(
            now=self.clock.now(),
            new_instance_id=lambda: f"i-{next(self._ids):03}",
            new_copy_id=lambda: f"c-{next(self._ids):03}",
            get_shape=get_shape,
            pace=self.pace,
            watched_since=self.watched_since,
        )

    def add(self, *records: Endpoint | InferenceComponent) -> None:
        for record in records:
            if isinstance(record, Endpoint):
                self.state.endpoints.put(SCOPE, record.name, record, expect=None)
            else:
                self.state.components.put(SCOPE, record.name, record, expect=None)

    def add_tags(self, arn: str, tags: dict[str, str]) -> None:
        self.state.tags.put(SCOPE, arn, TagSet(scope=SCOPE, arn=arn, tags=tags), expect=None)

    def change_endpoint(self, **changes: object) -> None:
        found = self.state.endpoints.get(SCOPE, "ep")
        assert found is not None
        after = replace(found.value, **changes)  # fields by name
        self.state.endpoints.put(SCOPE, "ep", after, expect=found.version)

    def change_component(self, name: str = "base", **changes: object) -> None:
        found = self.state.components.get(SCOPE, name)
        assert found is not None
        after = replace(found.value, **changes)  # fields by name
        self.state.components.put(SCOPE, name, after, expect=found.version)

    def restart_control(self) -> None:
        """Restart control. Only its records survive."""
        self.drivers = {}
        self._last = {}

    def last_states(self) -> list[EndpointState]:
        """The state of each endpoint after its last pass."""
        return list(self._last.values())

    def pass_once(self) -> None:
        """Make one pass over every endpoint. Instances get its result only if it succeeds."""
        context, known, before = self.context(), set[str](), self._seen
        is_quiet = (self.state.store.revision(), self.facts()) == before
        self._num_quiet = self._num_quiet + 1 if is_quiet else 0
        is_checked = self._num_quiet % QUIET_PASSES == 0
        for key in sorted(list_keys(self.state), key=str):
            last, after = self._last.get(key), self._pass_over(key, context, is_checked)
            for instance_id, desired in desired_by_instance(after, context.now, last).items():
                if instance_id not in self.drivers:
                    self.drivers[instance_id] = InstanceDriver(
                        after.instances[instance_id],
                        self.fleet,
                        self.fleet.connect,
                        self.clock,
                        lambda _: None,
                    )
                self.drivers[instance_id].set_desired(desired)
            self._last[key] = after
            known |= set(after.instances)
        for instance_id in set(self.drivers) - known:
            del self.drivers[instance_id]
        self._seen = (self.state.store.revision(), self.facts())
        if is_checked or self._seen != before:
            self.check_planned_routes()
            states = load_all(self.state)
            assert self._counter.take(states, self.facts()) == take_census(states, self.facts())

    def _pass_over(self, key: GroupKey, context: PlanContext, is_checked: bool) -> EndpointState:
        """Make one pass. If no pass is due after it, a second pass must change nothing.

        The second pass looks at everything, including parts that have not changed.
        """
        store, own = self.state.store, OwnWrites()
        args = (self.state, key, self.facts(), context, self.verdict_of)
        before = store.revision()
        after = reconcile_endpoint(*args, own, self._last.get(key))
        is_checked = is_checked or store.revision() != before
        if is_checked and not own.others(store.changes(before)):
            settled = store.revision()
            reconcile_endpoint(*args)
            assert store.revision() == settled, "a second pass changes something"
        return after

    def check_planned_routes(self) -> None:
        """Assert that routes planned change by change equal the routes planned as a whole."""
        targets = (it.value for it in self.state.scalable_targets.list())
        waking = WakeRules.of(AtZero.HOLD, targets)
        whole = plan_routes(load_all(self.state), lambda image: image == IMAGE, waking)
        assert self.planner.plan().snapshot == whole

    def facts(self) -> dict[str, InstanceFacts]:
        return {it: driver.facts for it, driver in self.drivers.items()}

    def step_instances(self) -> None:
        """Bring each instance one step closer to its desired copies."""

        async def step_all() -> None:
            for instance_id in sorted(self.drivers):
                with contextlib.suppress(RetryableError, TimeoutError):
                    async with asyncio.timeout(0 if self.switches.hang else None):
                        await self.drivers[instance_id].step(0.0)

        self._loop.run_until_complete(step_all())

    def turn(self, times: int = 1, *, seconds: float = 0.1) -> None:
        for _ in range(times):
            self.pass_once()
            self.step_instances()
            self.clock.advance(seconds)

    def settle(self) -> None:
        """Make turns until all that is left is to wait for the far future."""
        self.turn(40, seconds=0.2)

    def find_endpoint(self) -> Endpoint | None:
        found = self.state.endpoints.get(SCOPE, "ep")
        return None if found is None else found.value

    @property
    def endpoint(self) -> Endpoint:
        found = self.find_endpoint()
        assert found is not None
        return found

    def status(self) -> EndpointStatus | None:
        found = self.find_endpoint()
        return None if found is None else found.status

    def find_component(self, name: str = "base") -> InferenceComponent | None:
        found = self.state.components.get(SCOPE, name)
        return None if found is None else found.value

    def component(self, name: str = "base") -> InferenceComponent:
        found = self.find_component(name)
        assert found is not None
        return found

    def component_status(self, name: str = "base") -> ComponentStatus | None:
        found = self.find_component(name)
        return None if found is None else found.status

    def routes(self) -> RouteSnapshot:
        return plan_routes(load_all(self.state), lambda image: image == IMAGE)

    def find_endpoint_route(self) -> EndpointRoute | None:
        return next(iter(self.routes().endpoints), None)

    def endpoint_route(self) -> EndpointRoute:
        found = self.find_endpoint_route()
        assert found is not None
        return found

    def find_component_route(self, name: str = "base") -> ComponentRoute | None:
        route = self.find_endpoint_route()
        components = () if route is None else route.components
        return next((it for it in components if it.name == name), None)

    def component_route(self, name: str = "base") -> ComponentRoute:
        found = self.find_component_route(name)
        assert found is not None
        return found

    def routed_copies(self, name: str = "base") -> tuple[str, ...]:
        route = self.find_component_route(name)
        return () if route is None else tuple(it.id for it in route.copies)

    def running_copies(self) -> dict[str, CopyStatus]:
        return {
            copy_id: status
            for machine in self.fleet.machines.values()
            for copy_id, status in machine.copies.items()
        }

    def desired_by_instance(self) -> list[CopySpec]:
        """The copies that agents must run."""
        return [spec for machine in self.fleet.machines.values() for spec in machine.desired]

    def check_integrity(self) -> None:
        """Assert that no instance is oversubscribed, and nothing runs without a record."""
        for state in load_all(self.state):
            for instance in state.instances.values():
                mine = [it for it in state.copies.values() if it.instance_id == instance.id]
                held: Sequence[Requirements] = [
                    copy.spec.requirements for copy in mine if copy.spec.requirements is not None
                ]
                devices = [device for it in mine for device in it.spec.device_ids]
                assert len(devices) == len(set(devices)), "no accelerator is two copies' own"
                assert set(devices) <= set(range(instance.shape.accelerators))
                for copy in mine:
                    asked = copy.spec.requirements
                    assert asked is None or len(copy.spec.device_ids) == asked.accelerators
                assert sum(it.accelerators for it in held) <= instance.shape.accelerators
                assert sum(it.cpus for it in held) <= instance.shape.cpus
                assert sum(it.min_memory_bytes for it in held) <= instance.shape.memory_bytes
        recorded = {it.value.id for it in self.state.instances.list()}
        assert set(self.fleet.machines) <= recorded

    def copy_records(self, name: str = "base") -> list[Copy]:
        return [it.value for it in self.state.copies.list() if it.value.component_name == name]

    def instance_records(self) -> list[Instance]:
        """The instances that are not ending."""
        found = [it.value for it in self.state.instances.list()]
        return [it for it in found if it.state is not InstanceState.TERMINATING]

    def instances(self) -> list[tuple[str, InstanceState]]:
        return [(it.value.id, it.value.state) for it in self.state.instances.list()]
