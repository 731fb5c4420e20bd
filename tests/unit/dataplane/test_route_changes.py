"""Changes of routes: however they went, both ends have the same routes after them."""

import itertools
import random
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.selection import first_alone
from tests.unit.dataplane.routes_sample import (
    COPIES,
    ELSEWHERE,
    HERE,
    changed_between,
    component,
    delta_between,
    variant,
)

from hostelry.dataplane.route_table import EMPTY_SNAPSHOT, RouteTable
from hostelry.dataplane.routes import decode_delta, decode_snapshot
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.route_delta import (
    ChangedParts,
    EndpointId,
    RouteDelta,
    after,
    build_snapshot,
    encode_routes,
    endpoint_id,
    endpoint_total,
    total_change,
)
from hostelry.domain.routes import (
    ComponentRoute,
    ContainerRoute,
    EndpointRoute,
    FailedComponent,
    RouteSnapshot,
    ShadowRoute,
)
from hostelry.domain.scope import Scope
from hostelry.domain.serverless import ServerlessConfig
from hostelry.reconcile.route_board import RouteBoard

NAMES = [f"n-{number:02}" for number in range(24)]
SERVERLESS = ServerlessConfig(memory_mb=2048, max_concurrency=3)


def drawn_endpoint(source: random.Random, name: str) -> EndpointRoute:
    """An endpoint of components, or of models with containers, a shadow or no servers."""
    scope = source.choice([HERE, ELSEWHERE])
    if source.random() < 0.3:
        kind = source.randrange(4)
        one = variant("one", source.choice([1.0, 2.5]), COPIES[: source.randrange(3)])
        if kind == 1:
            one = replace(one, copies=(), containers=(ContainerRoute(hostname="a", copies=COPIES),))
        if kind == 2:
            one = replace(one, serverless=SERVERLESS)
        shadow = ShadowRoute(name="s", share=0.5, routing=RoutingStrategy.RANDOM, copies=COPIES)
        return EndpointRoute(
            scope=scope,
            name=name,
            takes_components=False,
            variants=(one,),
            shadow=shadow if kind == 3 else None,
        )
    # Any endpoint may have components with these names, so a name may move to another endpoint.
    chosen = sorted(source.sample(NAMES, source.randrange(6)))
    failed = [it for it in chosen if source.random() < 0.2]
    served = [it for it in chosen if it not in failed]
    return EndpointRoute(
        scope=scope,
        name=name,
        takes_components=True,
        components=tuple(drawn_component(source, it) for it in served),
        failed=tuple(FailedComponent(name=it, reason=f"r{source.randrange(3)}") for it in failed),
    )


def drawn_component(source: random.Random, name: str) -> ComponentRoute:
    adapter_id = source.choice([None, name])
    made = component(name, COPIES[: source.randrange(3)], adapter_id=adapter_id)
    return replace(made, serves_llm=source.random() < 0.7)


def histories(seed: int, length: int = 20) -> Iterable[list[EndpointRoute]]:
    """Endpoints as they change, with component names that are each on one endpoint only."""
    source = random.Random(seed)
    present: dict[EndpointId, EndpointRoute] = {}
    for _ in range(length):
        for _ in range(source.randrange(1, 3)):
            made = drawn_endpoint(source, source.choice("abcdefghi"))
            if source.random() < 0.2:
                present.pop(endpoint_id(made), None)
                continue
            others = [one for it, one in present.items() if it != endpoint_id(made)]
            taken = {it.name for one in others for it in one.components}
            taken |= {it.name for one in others for it in one.failed}
            present[endpoint_id(made)] = replace(
                made,
                components=tuple(it for it in made.components if it.name not in taken),
                failed=tuple(it for it in made.failed if it.name not in taken),
            )
        yield list(present.values())


def published(board: RouteBoard, endpoints: list[EndpointRoute]) -> RouteSnapshot:
    """Publish `endpoints`, with the changes since the last publication."""
    before = board.snapshot
    old = {} if before is None else {endpoint_id(it): it for it in before.endpoints}
    new = {endpoint_id(it): it for it in endpoints}
    differing = {it: changed_between(old.get(it), route) for it, route in new.items()}
    changed: dict[EndpointId, ChangedParts | None] = {
        it: parts for it, parts in differing.items() if parts is not None
    }
    changed |= dict.fromkeys(old.keys() - new.keys())
    snapshot = build_snapshot(endpoints)
    board.publish_change("" if before is None else before.version, snapshot, changed)
    return snapshot


def content(table: RouteTable) -> Mapping[str, Any]:
    """The whole content of the table, which is changed in place and prepared on demand."""
    kept = {name: copy(it) for name, it in vars(table).items() if name != "_endpoints"}
    kept["_components"] = {
        place: {name: table.component(Scope(*place), name) for name in there}
        for place, there in table._components.items()
    }
    return kept | {"snapshot": table.snapshot()}


@pytest.mark.parametrize("seed", first_alone(range(40), 10))
def test_changes_since_any_known_version_lead_to_the_newest_routes(seed: int) -> None:
    board, earlier, num_deltas = RouteBoard(), list[RouteSnapshot](), 0
    following = RouteTable(EMPTY_SNAPSHOT)
    for endpoints in histories(seed):
        snapshot = published(board, endpoints)
        whole = RouteTable(decode_snapshot(encode_routes(snapshot)))
        assert whole.snapshot() == snapshot
        for table in (*map(RouteTable, earlier), following):
            delta = board.delta_since(table.version)
            if delta is not None:
                num_deltas += 1
                after = table.apply(decode_delta(msgspec.json.encode(delta)))
                assert content(after) == content(whole)
                assert destinations(after) == destinations(whole)
                assert after.counted_ids() == whole.counted_ids() == counted(snapshot)
                assert after.snapshot() == snapshot
        earlier.append(snapshot)
        following = whole if delta is None else after  # of changes, wherever these are published
    assert num_deltas


@pytest.mark.parametrize("most", [2, 60])
@pytest.mark.parametrize("seed", first_alone(range(10), 3))
def test_few_changes_and_many_of_an_endpoint_lead_to_the_same_parts(seed: int, most: int) -> None:
    source = random.Random(seed)
    names = [f"n-{number:03}" for number in range(140)]
    made = {it: component(it) for it in source.sample(names, 100)}
    failed = {it: FailedComponent(name=it, reason="r") for it in names if it not in made}
    for number in range(10):
        old = whole(made, failed)
        for name in source.sample(names, source.randrange(1, most)):
            broken = FailedComponent(name=name, reason=f"r{number}")
            kind = source.randrange(4)
            made.pop(name, None)
            failed.pop(name, None)
            if kind < 2:
                made[name] = component(name, desired_copies=source.randrange(3))
            elif kind == 2:
                failed[name] = broken
        new = whole(made, failed)
        delta = delta_between(old, new)
        assert after(old, delta) == new
        assert total_change(old, delta) == endpoint_total(new) - endpoint_total(old)


def whole(
    made: Mapping[str, ComponentRoute], failed: Mapping[str, FailedComponent]
) -> EndpointRoute:
    """A route whose parts are in the order of their names."""
    return EndpointRoute(
        scope=HERE,
        name="e",
        takes_components=True,
        components=tuple(made[it] for it in sorted(made)),
        failed=tuple(failed[it] for it in sorted(failed)),
    )


def destinations(table: RouteTable) -> list[object]:
    """The destinations of requests for each name, in both regions."""
    asked = itertools.product((HERE, ELSEWHERE), NAMES)
    return [table.llms(HERE.account), [table.llm(scope, name) for scope, name in asked]]


def counted(snapshot: RouteSnapshot) -> set[str]:
    """The ids of all copies that requests go to, and the names of serverless variants."""
    found = set[str]()
    for endpoint in snapshot.endpoints:
        copies = [copy for it in endpoint.variants for copy in it.all_copies]
        copies += [copy for it in endpoint.components for copy in it.copies]
        found |= {counted.id for copy in copies for counted in (copy, *copy.further)}
        place = f"{endpoint.scope.account}/{endpoint.scope.region}/{endpoint.name}"
        serverless = [it.name for it in endpoint.variants if it.serverless is not None]
        found |= {f"serverless/{place}/{name}" for name in serverless}
    return found


def test_what_is_not_known_or_mostly_new_is_answered_whole() -> None:
    board = RouteBoard()
    parts = tuple(component(f"c{number}") for number in range(10))
    route = EndpointRoute(scope=HERE, name="e", takes_components=True, components=parts)
    first = published(board, [route])
    assert board.delta_since(first.version) is None, "there is nothing before it"
    second = published(board, [replace(route, components=parts[:-1])])
    assert board.delta_since(None) is None
    assert board.delta_since("another") is None
    delta = board.delta_since(first.version)
    assert delta is not None
    assert (delta.since, delta.version) == (first.version, second.version)
    assert [(it.components, it.gone) for it in delta.changed] == [((), ("c9",))]
    published(board, [replace(route, components=parts[:2])])
    assert board.delta_since(second.version) is None, "seven of nine went"
    board.publish_change("of no one", build_snapshot([route]), {})
    assert board.delta_since(second.version) is None, "a step is missing"


def drift(**changes: Any) -> RouteDelta:
    """The changes from one component to two, falsified."""
    board = RouteBoard()
    parts = tuple(component(f"c{number}") for number in range(10))
    route = EndpointRoute(scope=HERE, name="e", takes_components=True, components=parts[:8])
    first = published(board, [route])
    published(board, [replace(route, components=parts[:9])])
    delta = board.delta_since(first.version)
    assert delta is not None
    return replace(delta, **changes)


@cases(
    "delta",
    case("changes since other routes", drift(since="0" * 32)),
    case("changes that lead elsewhere", drift(version="0" * 32)),
    case("changes that are missing", drift(changed=())),
    case("an unknown endpoint goes", drift(removed=(("1", "2", "3"),), changed=())),
    case("an endpoint is changed twice", drift(changed=drift().changed * 2)),
)
def test_changes_that_do_not_lead_to_their_version_are_refused(delta: RouteDelta) -> None:
    parts = tuple(component(f"c{number}") for number in range(8))
    route = EndpointRoute(scope=HERE, name="e", takes_components=True, components=parts)
    table = RouteTable(build_snapshot([route]))
    before = dict(content(table))
    with pytest.raises(ValueError, match="changes since"):
        table.apply(delta)
    assert content(table) == before
    assert table.apply(drift()).component(HERE, "c8") is not None


def test_a_table_of_other_content_under_the_same_version_is_found_out() -> None:
    board = RouteBoard()
    parts = tuple(component(f"c{number}") for number in range(10))
    route = EndpointRoute(scope=HERE, name="e", takes_components=True, components=parts)
    first = published(board, [route])
    published(board, [replace(route, components=parts[:-1])])
    delta = board.delta_since(first.version)
    assert delta is not None
    other = replace(parts[-1], desired_copies=7)
    for wrong in (parts[:-1], (*parts[:-1], other)):
        held = RouteSnapshot(version=first.version, endpoints=(replace(route, components=wrong),))
        with pytest.raises(ValueError, match="lead to"):
            RouteTable(held).apply(delta)


def test_a_version_of_an_older_control_is_answered_whole() -> None:
    with pytest.raises(ValueError, match="is no sum"):
        RouteTable(RouteSnapshot(version="v1", endpoints=())).apply(drift(since="v1"))
