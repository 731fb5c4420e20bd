"""First fit: nothing is oversubscribed, order does not matter, and reasons say why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostelry.domain.shape import Requirements, Shape
from hostelry.placement.fit import (
    Host,
    NoFit,
    Placement,
    Reservation,
    free_shapes,
    never_fits,
    place,
)

MB = 1024 * 1024
SMALL = Shape(cpus=4, memory_bytes=16_384 * MB, accelerators=1)
BIG = Shape(cpus=48, memory_bytes=196_608 * MB, accelerators=4)


def needs(accelerators: int = 0, memory_mb: int = 1024, cpus: float = 1) -> Requirements:
    return Requirements(min_memory_bytes=memory_mb * MB, cpus=cpus, accelerators=accelerators)


def host(instance_id: str, shape: Shape = BIG) -> Host:
    return Host(instance_id=instance_id, shape=shape)


def held(instance_id: str, requirements: Requirements) -> Reservation:
    return Reservation(instance_id=instance_id, requirements=requirements)


@pytest.mark.parametrize(
    ("wanted", "hosts", "reservations", "expected"),
    [
        pytest.param([], [], [], [], id="nothing wanted fits on nothing"),
        pytest.param([needs(1)], [host("i-b"), host("i-a")], [], ["i-a"], id="lowest id first"),
        pytest.param([needs(1)] * 4, [host("i-a")], [], ["i-a"] * 4, id="fills every accelerator"),
        pytest.param(
            [needs(1)],
            [host("i-a", SMALL), host("i-b", SMALL)],
            [held("i-a", needs(1))],
            ["i-b"],
            id="a reservation is respected",
        ),
        pytest.param(
            [needs(1)], [host("i-a", SMALL)], [held("i-x", needs(1))], ["i-a"],
            id="a reservation on an unknown instance takes nothing",
        ),
        pytest.param(
            [needs(0, 16_384, 4)], [host("i-a", SMALL)], [], ["i-a"], id="an exact fit fits"
        ),
    ],
)  # fmt: skip
def test_place(
    wanted: list[Requirements],
    hosts: list[Host],
    reservations: list[Reservation],
    expected: list[str],
) -> None:
    assert place(wanted, hosts, reservations) == Placement(instance_ids=tuple(expected))


@pytest.mark.parametrize(
    ("wanted", "hosts", "placed", "reason"),
    [
        pytest.param(
            [needs(2, 14_336)],
            [host("i-a", SMALL)],
            (),
            "a copy needs 2 accelerators, 14336 MB, 1 CPU; "
            "the most free is 1 accelerator, 16384 MB, 4 CPUs on i-a",
            id="too few accelerators",
        ),
        pytest.param(
            [needs(1), needs(1, 1024, 0.5)],
            [host("i-a", SMALL)],
            ("i-a",),
            "a copy needs 1 accelerator, 1024 MB, 0.5 CPUs; "
            "the most free is 0 accelerators, 15360 MB, 3 CPUs on i-a",
            id="the first fits and the second does not",
        ),
        pytest.param(
            [needs()], [], (),
            "a copy needs 0 accelerators, 1024 MB, 1 CPU; no instance is there to hold it",
            id="no instance at all",
        ),
        pytest.param(
            [needs(9)],
            [host(f"i-{n}", SMALL) for n in range(6)],
            (),
            "a copy needs 9 accelerators, 1024 MB, 1 CPU; the most free is "
            + ", then ".join(f"1 accelerator, 16384 MB, 4 CPUs on i-{n}" for n in range(4))
            + ", and 2 instances with less",
            id="many instances are not all named",
        ),
    ],
)  # fmt: skip
def test_no_fit_says_what_was_asked_and_what_is_free(
    wanted: list[Requirements], hosts: list[Host], placed: tuple[str, ...], reason: str
) -> None:
    assert place(wanted, hosts, []) == NoFit(instance_ids=placed, reason=reason)


def test_what_can_never_fit_is_told_from_the_empty_shape() -> None:
    assert never_fits(needs(1), "ml.small", SMALL) is None
    assert never_fits(needs(2), "ml.small", SMALL) == (
        "a copy needs 2 accelerators, 1024 MB, 1 CPU; "
        "an empty ml.small has 1 accelerator, 16384 MB, 4 CPUs"
    )


requirements = st.builds(
    needs,
    accelerators=st.sampled_from([0, 1, 2, 4, 5]),
    memory_mb=st.integers(128, 100_000),
    cpus=st.sampled_from([0.25, 0.5, 1, 3, 8, 50]),
)
hosts = st.lists(
    st.builds(host, st.sampled_from([f"i-{n}" for n in range(5)]), st.sampled_from([SMALL, BIG])),
    unique_by=lambda it: it.instance_id,
)


@given(wanted=st.lists(requirements, max_size=8), hosts=hosts, data=st.data())
def test_nothing_is_ever_oversubscribed_and_order_does_not_matter(
    wanted: list[Requirements], hosts: list[Host], data: st.DataObject
) -> None:
    first = place(wanted, hosts, [])
    reservations = [held(it, wanted[n]) for n, it in enumerate(first.instance_ids)]
    for free in free_shapes(hosts, reservations).values():
        assert min(free.cpus, free.memory_bytes, free.accelerators) >= 0
    more = data.draw(st.lists(requirements, max_size=4))
    second = place(more, hosts, reservations)
    both = reservations + [held(it, more[n]) for n, it in enumerate(second.instance_ids)]
    for free in free_shapes(hosts, both).values():
        assert min(free.cpus, free.memory_bytes, free.accelerators) >= 0
    shuffled = data.draw(st.permutations(hosts))
    assert place(more, shuffled, data.draw(st.permutations(reservations))) == second


@given(wanted=st.lists(requirements, min_size=1, max_size=6), hosts=hosts)
def test_a_copy_is_left_out_only_where_no_instance_has_room(
    wanted: list[Requirements], hosts: list[Host]
) -> None:
    outcome = place(wanted, hosts, [])
    if isinstance(outcome, Placement):
        assert len(outcome.instance_ids) == len(wanted)
        return
    left_out = wanted[len(outcome.instance_ids)]
    taken = [held(it, wanted[n]) for n, it in enumerate(outcome.instance_ids)]
    for one in hosts:
        alone = place([left_out], [one], taken)
        assert isinstance(alone, NoFit)
