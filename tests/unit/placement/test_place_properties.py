"""Any fleet: never oversubscribed, order does not matter, no worse than first-fit-decreasing."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.fleets import (
    BINPACK,
    QUIET,
    as_held,
    ask,
    check_never_oversubscribed,
    host,
    needs,
    some_hosts,
    some_requests,
    some_requirements,
)

from hostelry.domain.shape import Requirements, Shape
from hostelry.placement.pack import place
from hostelry.placement.values import CopyRequest, Held, Host, Packing, Placed, WhyNot

request_lists = st.lists(some_requests(), max_size=10)


def placed_as_held(requests: list[CopyRequest], packing: Packing, prefix: str = "c") -> list[Held]:
    return [
        as_held(f"{prefix}{number}", requests[number].owner, it)
        for number, it in enumerate(packing.outcomes)
        if isinstance(it, Placed)
    ]


def left_out(requests: list[CopyRequest], packing: Packing) -> list[CopyRequest]:
    return [
        asked
        for asked, outcome in zip(requests, packing.outcomes, strict=True)
        if isinstance(outcome, WhyNot)
    ]


@QUIET
@given(first=request_lists, second=request_lists, hosts=some_hosts, data=st.data())
def test_nothing_is_oversubscribed_and_the_order_of_hosts_and_copies_does_not_matter(
    first: list[CopyRequest], second: list[CopyRequest], hosts: list[Host], data: st.DataObject
) -> None:
    there = placed_as_held(first, place(first, hosts, []))
    check_never_oversubscribed(hosts, there)
    packing = place(second, hosts, there)
    check_never_oversubscribed(hosts, [*there, *placed_as_held(second, packing, "d")])
    shuffled = data.draw(st.permutations(hosts))
    assert place(second, shuffled, data.draw(st.permutations(there))) == packing


@QUIET
@given(requests=request_lists, hosts=some_hosts)
def test_each_copy_reserves_what_it_asks_for_on_its_type(
    requests: list[CopyRequest], hosts: list[Host]
) -> None:
    types = {it.instance_id: it.instance_type for it in hosts}
    for asked, outcome in zip(requests, place(requests, hosts, []).outcomes, strict=True):
        if isinstance(outcome, Placed):
            instance_type = types[outcome.instance_id]
            assert outcome.requirements == asked.requirements_by_type[instance_type]
        else:
            assert outcome.owner == asked.owner
            assert outcome.asked == asked.requirements_by_type


@QUIET
@given(requests=request_lists, hosts=some_hosts)
def test_a_copy_is_left_out_only_where_no_instance_has_room(
    requests: list[CopyRequest], hosts: list[Host]
) -> None:
    packing = place(requests, hosts, [])
    there = placed_as_held(requests, packing)
    for asked in left_out(requests, packing):
        assert place([asked], hosts, there).placed == ()


@QUIET
@given(requests=request_lists, hosts=some_hosts)
def test_placing_the_same_again_beside_what_is_held_moves_nothing(
    requests: list[CopyRequest], hosts: list[Host]
) -> None:
    packing = place(requests, hosts, [])
    there = placed_as_held(requests, packing)
    assert place(left_out(requests, packing), hosts, there).placed == ()


def first_fit_decreasing(
    requests: list[Requirements], shape: Shape, num_hosts: int
) -> tuple[int, int]:
    """Placed copies and used instances, by a separate implementation for one instance type."""
    free = [[float(shape.accelerators), float(shape.memory_bytes), shape.cpus]] * num_hosts
    free = [list(it) for it in free]
    largest_first = sorted(
        requests,
        key=lambda it: (
            -it.accelerators,
            -max(
                it.accelerators / max(shape.accelerators, 1),
                it.min_memory_bytes / shape.memory_bytes,
                it.cpus / shape.cpus,
            ),
        ),
    )
    used: set[int] = set()
    num_placed = 0
    for needed in largest_first:
        asked = [needed.accelerators, float(needed.min_memory_bytes), needed.cpus]
        for number, left in enumerate(free):
            if all(a <= b for a, b in zip(asked, left, strict=True)):
                free[number] = [b - a for a, b in zip(asked, left, strict=True)]
                used.add(number)
                num_placed += 1
                break
    return num_placed, len(used)


@QUIET
@given(
    requests=st.lists(some_requirements, max_size=14),
    num_hosts=st.integers(1, 6),
    instance_type=st.sampled_from(["ml.big", "ml.small", "ml.plain"]),
)
def test_never_fewer_copies_nor_more_instances_than_first_fit_decreasing(
    requests: list[Requirements], num_hosts: int, instance_type: str
) -> None:
    hosts = [host(f"i-{number}", instance_type) for number in range(num_hosts)]
    num_placed, num_used = first_fit_decreasing(requests, hosts[0].shape, num_hosts)
    # Of equally large copies both sides take the first: owners sort as their requests.
    packed = place([ask(f"o{n:02}", it) for n, it in enumerate(requests)], hosts, []).placed
    assert len(packed) >= num_placed
    if len(packed) == num_placed:
        assert len({it.instance_id for it in packed}) <= num_used


@QUIET
@given(requests=st.lists(some_requests(), max_size=14), hosts=some_hosts)
def test_strategies_cost_no_copy_its_place(requests: list[CopyRequest], hosts: list[Host]) -> None:
    """SPREAD places as many as first-fit-decreasing too, on hosts of one type."""
    one_type = [host(it.instance_id, "ml.big", it.zone) for it in hosts]
    requirements = [next(iter(it.requirements_by_type.values())) for it in requests]
    all_types = [
        ask(it.owner, asked, it.strategy, max_imbalance=it.max_imbalance)
        for it, asked in zip(requests, requirements, strict=True)
    ]
    if one_type:
        at_least, _ = first_fit_decreasing(requirements, one_type[0].shape, len(one_type))
        assert len(place(all_types, one_type, []).placed) >= at_least


def all_fit(requests: list[Requirements], hosts: list[Host]) -> bool:
    """Whether any way of giving each copy an instance holds them all."""
    for choice in product(hosts, repeat=len(requests)):
        placed = [
            Held(copy_id="", owner="x", instance_id=one.instance_id, requirements=asked)
            for asked, one in zip(requests, choice, strict=True)
        ]
        if all(_holds(it, placed) for it in hosts):
            return True
    return False


def _holds(one: Host, placed: list[Held]) -> bool:
    mine = [it.requirements for it in placed if it.instance_id == one.instance_id]
    return (
        sum(it.accelerators for it in mine) <= one.shape.accelerators
        and sum(it.min_memory_bytes for it in mine) <= one.shape.memory_bytes
        and sum(it.cpus for it in mine) <= one.shape.cpus
    )


@QUIET
@given(
    requests=st.lists(some_requirements, max_size=6),
    types=st.lists(st.sampled_from(["ml.big", "ml.small", "ml.plain"]), min_size=1, max_size=3),
)
def test_where_some_packing_holds_all_at_most_one_copy_is_left_out(
    requests: list[Requirements], types: list[str]
) -> None:
    """The bound of the heuristic. Where not all fit, the large ones are placed first."""
    hosts = [host(f"i-{number}", name) for number, name in enumerate(types)]
    packing = place([ask("x", it) for it in requests], hosts, [])
    if packing.first_obstacle is not None and all_fit(requests, hosts):
        assert len(packing.placed) == len(requests) - 1


def test_a_mix_in_which_greed_would_leave_one_out() -> None:
    """2+2 and 3+1 fill two instances of four, unlike the smallest-first and as-given order."""
    requests = [ask("x", needs(it), BINPACK) for it in (1, 2, 3, 2)]
    packing = place(requests, [host("i-a"), host("i-b")], [])
    assert len(packing.placed) == 4
