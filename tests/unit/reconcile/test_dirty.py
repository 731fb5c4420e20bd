"""Plans that look only at changes since the last plan equal plans that look at everything."""

import copy
import random
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace
from tests.unit.reconcile.samples import (
    SCOPE,
    Town,
    adapter,
    adapter_spec,
    component,
    deployment,
    endpoint,
    needs,
    variant,
)
from tests.unit.reconcile.test_reconcile_walks import CALM, break_and_mend

from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopySpec
from hostelry.fleet.fake import FakeSwitches
from hostelry.reconcile.plan.dirty import clear_settled, mark_dirty
from hostelry.reconcile.plan.endpoint_state import EndpointState, GroupKey, PlanContext
from hostelry.reconcile.plan.plan import desired_by_instance, next_plan_at, plan
from hostelry.reconcile.record import list_writes, load

BASES = ("alpha", "beta", "gamma", "delta")
ADAPTERS = tuple(f"adapter-{number}" for number in range(8))
BROKEN = "s3://b/broken.tar.gz"
Change = Callable[[Town, random.Random], None]


class ComparedTown(Town):
    """A town in which each plan is made both ways first."""

    def __init__(self) -> None:
        super().__init__(switches=FakeSwitches(broken_adapters={BROKEN: "wrong rank"}))
        self.num_settled = 0
        self._given: dict[str, tuple[CopySpec, ...] | None] = {}

    def restart_control(self) -> None:
        super().restart_control()
        self._given = {}

    def _pass_over(self, key: GroupKey, context: PlanContext, is_checked: bool) -> EndpointState:
        last, found = self._last.get(key), []
        for known in (None, last):
            its = replace(
                context, new_instance_id=_named("i", self._ids), new_copy_id=_named("c", self._ids)
            )
            before = mark_dirty(load(self.state, key, self.facts()).state, known)
            after = plan(before, its)
            written = list_writes(before, after)
            rested = after if known is None else clear_settled(after, its)
            desired = desired_by_instance(rested, its.now, known)
            found.append((after, written, next_plan_at(rested, its), desired))
            self.num_settled += len(after.families.keys() - before.dirty_names())
        whole, since = found
        assert since[:3] == whole[:3]
        kept = {it: self._given[it] for it in whole[3] if it not in since[3]}
        self._given = kept | since[3]
        assert self._given == whole[3]
        return super()._pass_over(key, context, is_checked)


def _named(kind: str, ids: Iterator[int]) -> Callable[[], str]:
    """Name new records as the town does, without an effect on its next names."""
    mine = copy.copy(ids)
    return lambda: f"{kind}-{next(mine):03}"


def add_adapter(town: Town, dice: random.Random) -> None:
    name = dice.choice(ADAPTERS)
    if town.find_component(name) is None:
        uri = dice.choice(["s3://b/a.tar.gz", "s3://b/c.tar.gz", BROKEN])
        spec = replace(adapter_spec(uri), base_name=dice.choice(BASES))
        town.add(replace(adapter(name), adapter=spec))


def change_adapter(town: Town, dice: random.Random) -> None:
    """Other weights, which may be on another base, too."""
    name = dice.choice(ADAPTERS)
    one = town.find_component(name)
    if one is None or one.status is not ComponentStatus.IN_SERVICE or one.previous_adapter:
        return
    generation = town.state.store.revision() + 1
    base = dice.choice([one.adapter.base_name if one.adapter else "", *BASES])
    spec = replace(
        adapter_spec(dice.choice(["s3://b/d.tar.gz", BROKEN]), generation), base_name=base
    )
    town.change_component(
        name,
        status=ComponentStatus.UPDATING,
        adapter=replace(spec, base_name=base),
        previous_adapter=one.adapter,
        modified_at=town.clock.now(),
    )


def delete_adapter(town: Town, dice: random.Random) -> None:
    name = dice.choice(ADAPTERS)
    if town.find_component(name) is not None:
        town.change_component(
            name,
            status=ComponentStatus.DELETING,
            modified_at=town.clock.now(),
            deadline_at=None,
        )


def hang_or_answer(town: Town, dice: random.Random) -> None:
    if town.switches.hung_instances:
        town.switches.hung_instances.clear()
    else:
        town.switches.hung_instances.add(dice.choice(sorted(town.drivers)))


def restart(town: Town, _: random.Random) -> None:
    town.restart_control()


OF_ADAPTERS: tuple[Change, ...] = (add_adapter, add_adapter, change_adapter, delete_adapter)
CHANGES: tuple[Change, ...] = (
    *CALM,
    *OF_ADAPTERS,
    *OF_ADAPTERS,
    break_and_mend,
    hang_or_answer,
    restart,
)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_settled_makes_no_difference_to_a_plan(seed: int) -> None:
    dice, town = random.Random(seed), ComparedTown()
    sizes = variant(count=2, max_instances=3, consolidate=seed % 2 == 0)
    town.add(endpoint(deployment(sizes)))
    for name in BASES:
        town.add(component(name, copies=1, requirements=needs(accelerators=0)))
    town.turn(6, seconds=0.5)
    for _ in range(30):
        dice.choice(CHANGES)(town, dice)
        town.turn(dice.randint(1, 4), seconds=dice.choice([0.5, 2.0, 11.0]))
    assert town.num_settled > 50, "or nothing was compared"
    town.close()


def test_an_adapter_more_leaves_all_other_families_settled(town: Town) -> None:
    town.add(endpoint(deployment(variant(count=2))))
    for name in BASES:
        town.add(component(name, copies=1, requirements=needs(accelerators=0)))
    town.settle()
    (before,) = town.last_states()
    assert before.dirty == frozenset()
    town.add(replace(adapter(), adapter=replace(adapter_spec(), base_name="beta")))
    town.pass_once()
    (after,) = town.last_states()
    assert after.dirty == frozenset({"beta"})
    town.settle()
    assert [it.dirty for it in town.last_states()] == [frozenset()]
    found = town.state.components.get(SCOPE, "spanish")
    assert found is not None
    assert found.value.status is ComponentStatus.IN_SERVICE
