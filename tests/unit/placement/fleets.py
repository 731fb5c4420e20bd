"""Small fleets for tests of placement, and checks that every plan must pass."""

from collections.abc import Iterable, Mapping, Sequence

from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hostelry.domain.component import PlacementStrategy
from hostelry.domain.shape import Requirements, Shape
from hostelry.placement.values import CopyRequest, Held, Host, Move, Placed

MB = 1024 * 1024
QUIET = settings(deadline=None)
SMALL = Shape(cpus=4, memory_bytes=16_384 * MB, accelerators=1)
BIG = Shape(cpus=48, memory_bytes=196_608 * MB, accelerators=4)
PLAIN = Shape(cpus=16, memory_bytes=65_536 * MB, accelerators=0)
SHAPES = {"ml.small": SMALL, "ml.big": BIG, "ml.plain": PLAIN}
SPREAD, BINPACK = PlacementStrategy.SPREAD, PlacementStrategy.BINPACK


def needs(accelerators: int = 0, memory_mb: int = 1024, cpus: float = 1) -> Requirements:
    return Requirements(min_memory_bytes=memory_mb * MB, cpus=cpus, accelerators=accelerators)


def host(instance_id: str, instance_type: str = "ml.big", zone: str = "") -> Host:
    return Host(
        instance_id=instance_id, instance_type=instance_type, shape=SHAPES[instance_type], zone=zone
    )


def ask(
    owner: str,
    requirements: Requirements,
    strategy: PlacementStrategy = BINPACK,
    types: Iterable[str] = SHAPES,
    max_imbalance: int | None = None,
) -> CopyRequest:
    return CopyRequest(
        owner=owner,
        requirements_by_type=dict.fromkeys(types, requirements),
        strategy=strategy,
        max_imbalance=max_imbalance,
    )


def held(
    copy_id: str,
    instance_id: str,
    requirements: Requirements,
    owner: str = "other",
    device_ids: Sequence[int] | None = None,
) -> Held:
    count = int(requirements.accelerators)
    ids = tuple(range(count)) if device_ids is None else tuple(device_ids)
    return Held(
        copy_id=copy_id,
        owner=owner,
        instance_id=instance_id,
        requirements=requirements,
        device_ids=ids,
    )


def as_held(copy_id: str, owner: str, placed: Placed) -> Held:
    return Held(
        copy_id=copy_id,
        owner=owner,
        instance_id=placed.instance_id,
        requirements=placed.requirements,
        device_ids=placed.device_ids,
    )


def moved(all_held: Iterable[Held], moves: Iterable[Move]) -> list[Held]:
    """The placement after the moves."""
    to = {it.copy_id: it.to for it in moves}
    return [
        copy
        if copy.copy_id not in to
        else replace(as_held(copy.copy_id, copy.owner, to[copy.copy_id]), movable=copy.movable)
        for copy in all_held
    ]


def check_never_oversubscribed(hosts: Iterable[Host], all_held: Iterable[Held]) -> None:
    """Assert that sums are within the declared shape, and that no accelerator is shared."""
    mine: Mapping[str, list[Held]] = {it.instance_id: [] for it in hosts}
    for copy in all_held:
        mine[copy.instance_id].append(copy)
    for one in hosts:
        copies = mine[one.instance_id]
        assert sum(it.requirements.cpus for it in copies) <= one.shape.cpus + 1e-6
        assert sum(it.requirements.min_memory_bytes for it in copies) <= one.shape.memory_bytes
        device_ids = [number for it in copies for number in it.device_ids]
        assert len(device_ids) == len(set(device_ids))
        assert set(device_ids) <= set(range(one.shape.accelerators))
        for copy in copies:
            assert len(copy.device_ids) == int(copy.requirements.accelerators)


some_requirements = st.builds(
    needs,
    accelerators=st.sampled_from([0, 0, 1, 2, 4, 5]),
    memory_mb=st.sampled_from([128, 1000, 8_000, 16_384, 30_000, 70_000, 150_000]),
    cpus=st.sampled_from([0.25, 0.5, 1, 3, 8, 16, 30]),
)
some_types = st.sets(st.sampled_from(sorted(SHAPES)), min_size=1)
some_hosts = st.lists(
    st.builds(
        host,
        st.sampled_from([f"i-{n}" for n in range(6)]),
        st.sampled_from(sorted(SHAPES)),
        st.sampled_from(["a", "b"]),
    ),
    unique_by=lambda it: it.instance_id,
    max_size=5,
)


def some_requests(
    strategies: Sequence[PlacementStrategy] = (SPREAD, BINPACK),
) -> st.SearchStrategy[CopyRequest]:
    return st.builds(
        ask,
        st.sampled_from(["x", "y", "z"]),
        some_requirements,
        st.sampled_from(strategies),
        some_types,
        st.sampled_from([None, 0, 1, 100]),
    )
