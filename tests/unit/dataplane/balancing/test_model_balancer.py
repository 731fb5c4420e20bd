"""Requests for models: the copy that gets them, their leases, lost models and copies."""

import asyncio
import dataclasses
import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import COPIES, HERE

from hostelry.dataplane.balancing.load_balancer import InFlightRequest, LoadBalancer
from hostelry.dataplane.balancing.model_balancer import (
    ModelBalancer,
    ModelRequest,
    TargetModelRefusedError,
)
from hostelry.dataplane.balancing.model_homes import MAX_MODELS, ModelHomes
from hostelry.dataplane.balancing.outstanding import Outstanding
from hostelry.dataplane.fake import FakeReplyConnection
from hostelry.dataplane.tracing.call_trace import RouteView
from hostelry.domain.load import LoadKey
from hostelry.domain.routes import CopyRoute
from hostelry.http1.reply import ConnectError, Reply, UpstreamError
from hostelry.http1.upstream import Timeouts

KEY = LoadKey(scope=HERE, endpoint_name="many", variant_name="v")
AGENTS = ("http://127.0.0.1:8", "http://127.0.0.1:9")
MODEL_COPIES = tuple(
    dataclasses.replace(copy, models_address=f"{agent}/target-models/{copy.id}")
    for copy, agent in zip(COPIES, AGENTS, strict=True)
)


class Network:
    """Two copies and their agents. `answers` are the next ones of an address, else 200."""

    def __init__(self) -> None:
        self.loaded: dict[str, set[str]] = {agent: set() for agent in AGENTS}
        self.leases: dict[str, int] = {}
        self.released: list[dict[str, Any]] = []
        self.answers: dict[str, list[tuple[int, bytes] | UpstreamError]] = {}
        self.invoked: list[str] = []
        self.acquired: dict[str, list[str]] = {agent: [] for agent in AGENTS}
        self.more_room: list[bool] = []
        self.calls: list[str] = []  # of agents
        self.keep = False

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        head, body = parts
        status, content = 200, b"ok"
        waiting = self.answers.get(address)
        if waiting:
            given = waiting.pop(0)
            if isinstance(given, UpstreamError):
                raise given
            status, content = given
        elif address in AGENTS:
            status, content = self.agent(address, head.split()[1].decode(), json.loads(body))
        if address not in AGENTS:
            self.invoked.append(f"{address[-1]} {head.split()[1].decode()}")
        reply = Reply(FakeReplyConnection())
        reply.set_head(status, {})
        reply.add_chunk(content)
        reply.end(reusable=True)
        return reply

    def agent(self, address: str, path: str, asked: dict[str, Any]) -> tuple[int, bytes]:
        self.calls.append(path.rpartition("/")[2])
        if path.endswith("/release"):
            self.released.append(asked)
            self.leases[asked["lease"]] -= 1
            return 204, b""
        target, there = asked["target"], self.loaded[address]
        self.acquired[address].append(target)
        self.more_room.append(asked.get("more_room", False))
        hit = target in there
        there.add(target)
        lease = f"lease-{len(self.leases)}"
        self.leases[lease] = 1
        members = {"lease": lease, "model_id": target, "hit": hit, "waited_s": 0.0 if hit else 1.0}
        members["keep"] = self.keep
        return 200, json.dumps(members).encode()


class Rig:
    def __init__(self) -> None:
        self.now_s = 50.0
        self.network = Network()
        self.outstanding = Outstanding()
        self.placed: list[InFlightRequest] = []
        self.routes: list[RouteView | None] = []
        self.copies: tuple[CopyRoute, ...] = MODEL_COPIES
        self.homes = ModelHomes(lambda: self.now_s)
        self.pause_s = 2.0

    def play(self, *targets: str, close: bool = True) -> list[int]:
        """The statuses of requests one after another. `close` ends each before the next."""
        statuses = []

        async def run() -> None:
            now = lambda: self.now_s  # noqa: E731
            copies = LoadBalancer(self.network, self.outstanding, lambda: 0.0, now)
            models = ModelBalancer(copies, self.network, self.outstanding, self.homes, now)
            for target in targets:
                request = replace(asked(target), chosen=lambda *given: self.routes.append(given[3]))
                sent = await models.send(self.copies, request)
                statuses.append(sent.reply.status)
                self.placed.append(sent)
                self.now_s += self.pause_s
                if close:
                    sent.close()
                    await asyncio.sleep(0)
            for sent in self.placed:
                sent.close()
            for _ in range(50):
                await asyncio.sleep(0)
            await models.close()

        asyncio.run(run())
        return statuses


def asked(target: str) -> ModelRequest:
    return ModelRequest(
        key=KEY,
        target=target,
        head=lambda model_id: f"POST /models/{model_id}/invoke HTTP/1.1\r\n".encode(),
        body=b"{}",
        timeouts=Timeouts(total_s=1),
        whole_below_bytes=None,
        chosen=lambda _copy, _count, _config, _route: None,
        leased=lambda _lease: None,
    )


def test_a_model_is_leased_invoked_and_given_back_where_it_is() -> None:
    rig = Rig()
    assert rig.play("a", "b", "a", "a") == [200] * 4
    homes = {path.partition(" ")[2]: path[0] for path in rig.network.invoked}
    assert len(rig.network.invoked) == 4
    assert len({it for it in rig.network.invoked if "/a/" in it}) == 1, "one copy has model a"
    assert set(homes) == {"/models/a/invoke", "/models/b/invoke"}
    assert set(rig.network.leases.values()) == {0}
    assert all(not it["lost"] for it in rig.network.released)
    assert rig.outstanding.total == 0


def test_gateways_that_know_nothing_choose_the_same_copy() -> None:
    first, second = Rig(), Rig()
    names = [f"m{number}" for number in range(20)]
    first.play(*names)
    second.play(*names)
    assert first.network.invoked == second.network.invoked
    assert len({it[0] for it in first.network.invoked}) == 2, "both copies have models"


@pytest.mark.parametrize("kind", ["agent", "copy"])
def test_a_copy_that_is_gone_is_replaced_at_once(kind: str) -> None:
    rig = Rig()
    for copy, agent in zip(COPIES, AGENTS, strict=True):
        if copy is COPIES[0]:
            address = agent if kind == "agent" else copy.address
            rig.network.answers[address] = [ConnectError("refused")] * 50
    assert rig.play(*(f"m{number}" for number in range(10))) == [200] * 10
    assert {it[0] for it in rig.network.invoked} == {"2"}
    assert rig.outstanding.total == 0


def test_without_any_copy_the_request_was_not_processed() -> None:
    rig = Rig()
    for agent in AGENTS:
        rig.network.answers[agent] = [ConnectError("refused")]
    with pytest.raises(ConnectError):
        rig.play("a")


def test_a_model_that_the_container_has_lost_is_loaded_again_once() -> None:
    rig = Rig()
    for copy in COPIES:
        rig.network.answers[copy.address] = [(404, b"not loaded")]
    assert rig.play("a") == [200]
    assert [it["lost"] for it in rig.network.released] == [True, False]
    order = "the agent learns of it before it is asked again"
    assert rig.network.calls == ["acquire", "release", "acquire", "release"], order
    rig = Rig()
    for copy in COPIES:
        rig.network.answers[copy.address] = [(404, b"not loaded")] * 3
    assert rig.play("a") == [404], "and no more than once"


@cases(
    "refusals, statuses", case("room is made once", 1, [200]), case("that did not help", 3, [507])
)
def test_a_request_without_memory_is_sent_again_after_evictions(
    refusals: int, statuses: list[int]
) -> None:
    rig = Rig()
    for copy in COPIES:
        rig.network.answers[copy.address] = [(507, b"full")] * refusals
    assert rig.play("a") == statuses
    assert rig.network.more_room == [False, True]
    assert [it["lost"] for it in rig.network.released] == [False, False]


@cases(
    "status, model_status",
    case("no such object", 400, None),
    case("it takes too long to load", 429, None),
    case("it does not load", 424, 500),
)
def test_a_model_that_cannot_be_had(status: int, model_status: int | None) -> None:
    rig = Rig()
    content = json.dumps({"message": "why", "status": model_status}).encode()
    for agent in AGENTS:
        rig.network.answers[agent] = [(status, content)]
    with pytest.raises(TargetModelRefusedError, match="why") as caught:
        rig.play("a")
    assert (caught.value.status, caught.value.model_status) == (status, model_status)
    assert rig.network.invoked == []


@pytest.mark.parametrize(
    "answer", [(503, b"starting"), (200, b"no JSON"), (424, b"{}"), (403, b"key")]
)
def test_an_agent_that_answers_nonsense_is_passed_over(answer: tuple[int, bytes]) -> None:
    rig = Rig()
    rig.network.answers[AGENTS[0]] = [answer] * 50
    assert rig.play("m0", "m1", "m2", "m3") == [200] * 4
    assert {it[0] for it in rig.network.invoked} == {"2"}


def test_a_hot_model_is_loaded_on_another_copy_too() -> None:
    rig = Rig()
    rig.play(*["hot"] * 400, close=False)
    assert all("hot" in there for there in rig.network.loaded.values())
    assert {it[0] for it in rig.network.invoked} == {"1", "2"}
    assert set(rig.network.leases.values()) == {0}


def test_a_copy_that_was_restarted_is_expected_to_have_nothing() -> None:
    homes = ModelHomes(lambda: 0.0)
    (copy, _) = MODEL_COPIES
    assert homes.choose(KEY, [copy], [0], "a").loads
    homes.learn_lease(copy, "a", hit=False, waited_s=3.0)
    assert not homes.choose(KEY, [copy], [0], "a").loads
    moved: CopyRoute = dataclasses.replace(copy, address="http://127.0.0.1:77")
    assert homes.choose(KEY, [moved], [0], "a").loads


def test_a_gateway_remembers_a_bounded_number_of_models_of_a_copy() -> None:
    homes = ModelHomes(lambda: 0.0)
    copies = MODEL_COPIES[:1]
    for number in range(MAX_MODELS + 50):
        homes.choose(KEY, copies, [0], f"m{number}")
    for number in range(50):  # answers to requests for models that were forgotten meanwhile
        homes.learn_lease(copies[0], f"m{number}", hit=False, waited_s=1.0)
    known = [
        number
        for number in range(MAX_MODELS + 50)
        if not homes.choose(KEY, copies, [0], f"m{number}").loads
    ]
    assert len(known) <= MAX_MODELS


def test_a_new_copy_gets_the_popular_models_first() -> None:
    rig = Rig()
    rig.copies = MODEL_COPIES[:1]
    rig.play("a", "b", "b", "b", "c", "c", "rare")
    rig.copies = MODEL_COPIES
    rig.play("b")
    assert rig.network.loaded[AGENTS[1]] == {"b", "c"}
    assert list(dict.fromkeys(rig.network.acquired[AGENTS[1]])) == ["b", "c"], "in this order"
    assert set(rig.network.leases.values()) == {0}


def test_nothing_is_loaded_ahead_for_another_endpoint_or_onto_the_first_copies() -> None:
    now_s = 0.0
    homes = ModelHomes(lambda: now_s)
    assert homes.newcomers(MODEL_COPIES) == [], "no copy has a model yet"
    for _ in range(3):
        homes.choose(KEY, MODEL_COPIES[:1], [0], "a")
    assert homes.newcomers(MODEL_COPIES) == [MODEL_COPIES[1]]
    assert homes.newcomers(MODEL_COPIES) == [], "once"
    assert homes.popular(KEY) == ["a"]
    assert homes.popular(replace(KEY, endpoint_name="other")) == []
    now_s = 600.0
    assert homes.popular(KEY) == [], "popularity fades"


@cases(
    "pause_s, num_leases",
    case("requests that follow each other use one lease", 0.01, 1),
    case("each request after a while takes its own", 2.0, 4),
)
def test_a_lease_serves_the_next_requests_where_the_agent_lets_it(
    pause_s: float, num_leases: int
) -> None:
    rig = Rig()
    rig.network.keep, rig.pause_s = True, pause_s
    assert rig.play("a", "a", "a", "a") == [200] * 4
    assert sum(map(len, rig.network.acquired.values())) == num_leases
    assert len(rig.network.invoked) == 4
    assert set(rig.network.leases.values()) == {0}
    assert sum(it["uses"] for it in rig.network.released) == 4


def test_a_model_that_is_lost_under_a_kept_lease_is_loaded_again() -> None:
    rig = Rig()
    rig.network.keep, rig.pause_s = True, 0.01
    rig.copies = MODEL_COPIES[:1]
    rig.network.answers[COPIES[0].address] = [(200, b"ok"), (404, b"gone"), (200, b"ok")]
    assert rig.play("a", "a") == [200, 200]
    assert rig.network.acquired[AGENTS[0]] == ["a", "a"]
    assert [it["lost"] for it in rig.network.released] == [True, False]
    assert set(rig.network.leases.values()) == {0}


def test_what_a_models_copy_was_chosen_from_is_reported_with_the_costs() -> None:
    rig = Rig()
    rig.play("a")
    (route,) = rig.routes
    assert route is not None
    assert route[:2] == ("model", tuple(it.id for it in MODEL_COPIES))
    assert all(cost > 0 for cost in route[2]), "milliseconds"
    rig.copies = MODEL_COPIES[:1]
    rig.play("a")
    assert rig.routes[1:] == [None], "there was no choice"
