"""The parts of an endpoint's state: found from its values, or kept as these change."""

import random

from msgspec.structs import replace
from tests.unit.reconcile.samples import SCOPE, adapter, adapter_spec, component, container

from hostelry.domain.component import InferenceComponent
from hostelry.domain.copy import Copy, CopyPhase, CopySpec, CopyStatus
from hostelry.reconcile.plan.endpoint_state import build_state

BASES = ("base", "other", "third")


def copy_of(name: str, component_name: str | None, created_at: float) -> Copy:
    return Copy(
        scope=SCOPE,
        endpoint_name="ep",
        variant_name="AllTraffic",
        component_name=component_name,
        generation=1,
        instance_id="i-1",
        spec=CopySpec(
            id=name,
            owner="",
            container=container(),
            requirements=None,
            download_timeout_s=1.0,
            startup_timeout_s=1.0,
        ),
        status=CopyStatus(id=name, phase=CopyPhase.PENDING),
        created_at=created_at,
    )


def some_component(source: random.Random) -> InferenceComponent:
    name = source.choice((*BASES, "a", "b", "c", "d"))
    if name in BASES:
        return component(name, copies=source.randrange(3))
    spec = replace(adapter_spec(), base_name=source.choice(BASES))
    return replace(adapter(name), adapter=spec)


def test_parts_follow_the_values_and_others_stay_the_same_objects() -> None:
    source = random.Random(7)
    state = build_state(None)
    for _ in range(400):
        before = state
        one = some_component(source)
        its_copy = copy_of(source.choice("xyz"), source.choice((*BASES, None)), source.random())
        if source.random() < 0.2:
            state = state.remove_copies([its_copy.spec.id])
        else:
            state = state.replace_components([one]).add_copies([its_copy])
        afresh = build_state(None, state.components, copies=state.copies)
        for name, family in state.families.items():
            assert list(family.items()) == list(afresh.families[name].items())
            unchanged = before.families.get(name) == family
            assert (before.families.get(name) is family) == unchanged
            adapters = [it for it in family.values() if it.adapter is not None]
            assert list(state.list_adapters(name)) == adapters
        for part, copies in state.copy_set.by_component.items():
            assert copies == afresh.copy_set.by_component[part]
            assert sorted(copies.values(), key=lambda it: (it.created_at, it.spec.id)) == list(
                state.list_copies(part)
            )
            assert (before.copy_set.by_component.get(part) is copies) == (
                before.copy_set.by_component.get(part) == copies
            )
        assert state.copy_set.by_component.keys() == afresh.copy_set.by_component.keys()
        assert state.families.keys() == afresh.families.keys()
