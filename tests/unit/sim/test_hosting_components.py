"""Queued, serverless and multi-model components in replays, against results known by arithmetic."""

import numpy as np
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.scaling import Dimension
from hostelry.domain.serverless import ServerlessConfig
from hostelry.domain.shape import Shape
from hostelry.sim.fleet import SimulatedDeployment
from hostelry.sim.ledger import RequestFate
from hostelry.sim.multi_model import HeldModel, ModelRoom, MultiModelComponent
from hostelry.sim.policy_requests import PolicySet
from hostelry.sim.queued import IDLE_S
from hostelry.sim.replay import Replay, ReplayedModel, ReplaySetup
from hostelry.sim.service import ServiceModel
from hostelry.sim.trace import Trace, build_block

GIB = 2**30
SECOND = ServiceModel(
    prefill_s=1.0, prefill_s_per_token=0.0, token_s=0.0, max_concurrency=1,
    cold_start_s=4.0, warm_start_s=2.0, instance_start_s=3.0,
)  # fmt: skip
EXACT = SimulatedDeployment(
    shape=Shape(cpus=8, memory_bytes=32 * GIB), start_spread=0.0, one_copy_an_instance=True
)
ONE = PolicySet(name="one", minimum=1, maximum=1, dimension=Dimension.INSTANCES)


def trace_of(*calls: tuple[float, int], models: list[str], lasts_s: float = 100.0) -> Trace:
    at_s = np.array([at for at, _ in calls])
    ones = np.ones(len(calls), dtype=np.int64)
    block = build_block(at_s, ones, ones, np.array([model for _, model in calls]))
    return Trace(name="test", blocks=[block], models=models, lasts_s=lasts_s)


def replay(trace: Trace, setup: ReplaySetup) -> Replay:
    found = Replay(trace, setup)
    found.run()
    return found


def took(found: Replay) -> list[float]:
    """Seconds of the requests, in the order of arrival."""
    ledger = found.ledger
    return [round(it, 6) for _, it in sorted(zip(ledger.arrived_s, ledger.took_s, strict=True))]


def test_models_have_times_and_reservations_of_their_own() -> None:
    slow = replace(SECOND, prefill_s=5.0)
    setup = ReplaySetup(
        policies=ONE, deployment=EXACT, service=SECOND, models={"b": ReplayedModel(service=slow)}
    )
    found = replay(trace_of((0.0, 0), (1.5, 1), models=["a", "b"]), setup)
    assert took(found) == [1.0, 5.0]
    assert list(found.ledger.of) == [0, 1]


def test_a_queue_starts_requests_in_order_and_never_two_on_a_busy_copy() -> None:
    two = PolicySet(name="two", minimum=2, maximum=2, dimension=Dimension.INSTANCES)
    setup = ReplaySetup(policies=two, deployment=EXACT, service=SECOND, is_queued=True)
    found = replay(trace_of(*((0.0, 0),) * 5, models=["a"]), setup)
    assert took(found) == [1.0, 1.0, 2.0, 2.0, 3.0]


class TestServerless:
    CONFIG = ServerlessConfig(memory_mb=1024, max_concurrency=2)

    def replay(self, *calls: tuple[float, int], lasts_s: float = 100.0) -> Replay:
        deployment = SimulatedDeployment(
            instance_type=self.CONFIG.instance_type,
            shape=self.CONFIG.shape,
            requirements=self.CONFIG.environment,
            start_spread=0.0,
            max_instances=1,
            initial_copies=0,
        )
        setup = ReplaySetup(
            policies=PolicySet(name="serverless", minimum=0, maximum=2),
            deployment=deployment,
            service=SECOND,
            serverless=self.CONFIG,
        )
        return replay(trace_of(*calls, models=["a"], lasts_s=lasts_s), setup)

    def test_the_first_request_waits_for_instance_and_environment(self) -> None:
        found = self.replay((0.0, 0), (20.0, 0))
        assert took(found) == [3.0 + 4.0 + 1.0, 1.0]
        assert list(found.ledger.delayed) == [1, 0]

    def test_requests_beyond_the_limit_are_throttled(self) -> None:
        found = self.replay((0.0, 0), (0.1, 0), (0.2, 0))
        assert sorted(found.ledger.fate) == [
            RequestFate.ANSWERED, RequestFate.ANSWERED, RequestFate.THROTTLED,
        ]  # fmt: skip

    def test_idle_environments_end_and_the_next_start_is_warm(self) -> None:
        found = self.replay((0.0, 0), (IDLE_S + 60.0, 0), lasts_s=IDLE_S + 100.0)
        assert took(found) == [8.0, 2.0 + 1.0]


class TestMultiModel:
    MODELS = ("e/a", "e/b", "e/c")

    def replay(
        self,
        *calls: tuple[float, int],
        room: int = 2,
        copies: int = 1,
        loaded: tuple[int, ...] = (),
        at_once: int = 9,
    ) -> Replay:
        held = [
            HeldModel(
                name=name,
                memory_bytes=GIB,
                disk_bytes=1,
                download_s=3.0,
                load_s=2.0,
                at_once=at_once,
            )
            for name in self.MODELS
        ]
        setup = ReplaySetup(
            policies=replace(ONE, minimum=copies, maximum=copies),
            deployment=EXACT,
            service=replace(SECOND, max_concurrency=4),
            room=ModelRoom(memory_bytes=room * GIB, disk_bytes=GIB, models=held, loaded=loaded),
        )
        return replay(trace_of(*calls, models=list(self.MODELS)), setup)

    def test_a_model_is_downloaded_and_loaded_once(self) -> None:
        found = self.replay((0.0, 0), (1.0, 0), (20.0, 0))
        assert took(found) == [3.0 + 2.0 + 1.0, 5.0, 1.0]

    def test_models_of_the_beginning_are_loaded_as_far_as_there_is_room(self) -> None:
        found = self.replay((0.0, 2), (20.0, 0), (40.0, 1), loaded=(2, 0, 1))
        assert took(found) == [1.0, 1.0, 6.0]

    def test_requests_of_a_model_wait_for_its_server_and_others_do_not(self) -> None:
        calls = ((0.0, 0), (0.0, 0), (0.0, 0), (0.0, 1))
        found = self.replay(*calls, loaded=(0, 1), at_once=1)
        assert sorted(took(found)) == [1.0, 1.0, 2.0, 3.0]
        waits = self.replay((0.0, 0), (0.0, 0), at_once=1)
        assert sorted(took(waits)) == [6.0, 7.0]

    def test_an_evicted_model_is_loaded_again_but_not_downloaded(self) -> None:
        found = self.replay((0.0, 0), (10.0, 1), (20.0, 2), (30.0, 0), (30.5, 1), (31.0, 2))
        assert took(found)[:3] == [6.0, 6.0, 6.0]
        assert took(found)[3:].count(3.0) >= 1
        component = found.scaled[0].component
        assert isinstance(component, MultiModelComponent)
        assert component.num_hits + component.num_misses == 6
        assert component.num_misses >= 4

    @cases(
        "room, fate",
        case("a model that fits", 1, RequestFate.ANSWERED),
        case("a model that is larger than the copy", 0, RequestFate.NOT_LOADED),
    )
    def test_size(self, room: int, fate: RequestFate) -> None:
        assert list(self.replay((0.0, 0), room=room).ledger.fate) == [fate]

    def test_models_in_use_are_not_evicted(self) -> None:
        found = self.replay((0.0, 0), (5.5, 1), room=1)
        assert took(found) == [6.0, 0.5 + 5.0 + 1.0]

    def test_requests_go_where_their_model_is(self) -> None:
        calls = [(float(at), at % 3) for at in range(0, 90, 3)] + [(91.0, 0)]
        found = self.replay(*calls, copies=3, room=3)
        component = found.scaled[0].component
        assert isinstance(component, MultiModelComponent)
        assert component.num_misses <= 2  # a second copy may load it while the first one does

    def test_a_seed_gives_one_outcome(self) -> None:
        calls = [(at / 3, at % 3) for at in range(200)]
        digests = {self.replay(*calls, copies=2).digest() for _ in range(2)}
        assert len(digests) == 1
