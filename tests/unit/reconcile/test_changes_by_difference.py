"""After any change of records, routes and census by changes equal those built as a whole."""

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.reconcile.samples import (
    SCOPE,
    Town,
    adapter,
    component,
    deployment,
    endpoint,
    needs,
    variant,
)

from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import InstanceState
from hostelry.domain.endpoint import EndpointStatus
from hostelry.reconcile.census import CensusCounter, take_census
from hostelry.reconcile.plan.endpoint_state import InstanceFacts
from hostelry.reconcile.record import load_all
from hostelry.store.records import Records

BASES = ("base", "other", "third")
ADAPTERS = ("french", "german", "spanish", "welsh")


@pytest.fixture
def town() -> Iterator[Town]:
    found = Town()
    for name in BASES:
        found.add(component(name, copies=2, requirements=needs(1, 0, 3)))
    found.add(endpoint(deployment(variant(count=2))), *(adapter(it) for it in ADAPTERS))
    found.settle()
    yield found
    found.close()


def change(records: Records[Any], source: random.Random, **values: Any) -> None:
    """Replace a record, drawn among those there are, by one with these values."""
    found = records.list()
    if found:
        one = source.choice(found)
        name = getattr(one.value, "name", None) or getattr(one.value, "id", None)
        name = name or one.value.spec.id
        records.put(SCOPE, name, replace(one.value, **values), expect=one.version)


def drawn_change(town: Town, source: random.Random) -> None:
    """Any change of a record, also one that no pass would make."""
    state = town.state
    kind = source.randrange(8)
    if kind == 0:
        change(state.components, source, status=source.choice(list(ComponentStatus)))
    elif kind == 1:
        proven = frozenset(f"{it}--g1" for it in source.sample(ADAPTERS, 2))
        change(state.copies, source, proven_adapters=proven)
    elif kind == 2:
        change(state.copies, source, drain_deadline_at=source.choice([None, 1.0]))
    elif kind == 3:
        change(state.instances, source, state=source.choice(list(InstanceState)))
    elif kind == 4:
        change(state.endpoints, source, status=source.choice(list(EndpointStatus)))
    elif kind == 5:
        for gone in [it for it in state.components.list() if it.value.adapter is not None][:1]:
            state.components.delete(SCOPE, gone.value.name, expect=gone.version)
    elif kind == 6:
        name = source.choice(ADAPTERS)
        if state.components.get(SCOPE, name) is None:
            made = adapter(name)
            assert made.adapter is not None
            moved = replace(made.adapter, base_name=source.choice((*BASES, "nowhere")))
            town.add(replace(made, adapter=moved, status=source.choice(list(ComponentStatus))))
    else:
        found = source.choice(state.copies.list())
        state.copies.delete(SCOPE, found.value.spec.id, expect=found.version)
        state.copies.put(SCOPE, f"{found.value.spec.id}x", renamed(found.value), expect=None)


def renamed(copy: Any) -> Any:
    """Another copy like this one."""
    made = f"{copy.spec.id}x"
    status = dataclasses.replace(copy.status, id=made)
    return replace(copy, spec=replace(copy.spec, id=made), status=status)


def reported(facts: dict[str, InstanceFacts], source: random.Random) -> dict[str, InstanceFacts]:
    """The facts with a newer report of one instance, or without a report of it."""
    name = source.choice(sorted(facts))
    seen = facts[name].observation
    if seen is None or source.random() < 0.1:
        return {**facts, name: InstanceFacts()}
    used = source.choice([0, 1, 5])
    copies = tuple(
        dataclasses.replace(copy, memory_bytes=used, cpu_at=float(used)) for copy in seen.copies
    )
    return {**facts, name: replace(facts[name], observation=replace(seen, copies=copies))}


@pytest.mark.parametrize("seed", range(12))
def test_any_change_leads_to_the_routes_and_the_census_of_everything(town: Town, seed: int) -> None:
    source, counter, facts = random.Random(seed), CensusCounter(), town.facts()
    for _ in range(40):
        for _ in range(source.randrange(3)):
            drawn_change(town, source)
        facts = reported(facts, source)
        states = load_all(town.state)
        assert counter.take(states, facts, 0.5) == take_census(states, facts, 0.5)
        town.check_planned_routes()


def test_what_an_adapter_does_not_touch_is_kept(town: Town) -> None:
    counter, planner = CensusCounter(), town.planner
    before = counter.take(load_all(town.state), town.facts())
    (old,) = planner.plan().snapshot.endpoints
    town.change_component("french", status=ComponentStatus.DELETING)
    planned = planner.plan()
    (route,) = planned.snapshot.endpoints
    ((_, parts),) = planned.changed.items()
    assert parts is not None
    assert not parts.is_whole
    assert (parts.components, parts.failed) == (frozenset({"french"}), frozenset())
    kept = {it.name: it for it in old.components}
    assert kept.pop("french") not in route.components
    assert all(kept.pop(it.name) is it for it in route.components)
    assert not kept
    after = counter.take(load_all(town.state), town.facts())
    gone = before.components.keys() - after.components.keys()
    assert [it.component_name for it in gone] == ["french"]
    assert all(before.components[key] is it for key, it in after.components.items())
    assert all(before.variants[key] is it for key, it in after.variants.items())
