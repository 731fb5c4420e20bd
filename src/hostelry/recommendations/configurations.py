"""Chooses the instance types and environments that a recommendations job measures."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hostelry.domain.shape import InstanceType, Shape

NUM_TYPES = 4  # that a job measures by itself
NUM_GPU_TYPES = 2  # of them, if the machine has accelerators
CPU_FAMILIES = ("c5", "m5", "r5")  # one family for each ratio of memory to CPUs
GPU_FAMILIES = ("g5", "p4d", "p5")
MEMORY_SLACK = 1.1  # a machine of 8 GiB reports a little less


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """An instance type, and the variables that the model's containers get in addition."""

    instance_type: str
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)


class ConfigurationRange(msgspec.Struct, frozen=True, kw_only=True):
    """An instance type, and the values of each variable that are tried."""

    instance_type: str
    values: tuple[tuple[str, tuple[str, ...]], ...] = ()


def choose_instance_types(types: Iterable[InstanceType], machine: Shape) -> tuple[str, ...]:
    """Choose a few types that the machine has the resources of, from small to large.

    If the machine is smaller than every type, the smallest type is chosen.
    """
    known = sorted(types, key=_get_size)
    plain = [it for it in known if not it.shape.accelerators and _get_family(it) in CPU_FAMILIES]
    fitting = [it for it in plain if _fits(it.shape, machine)]
    gpus = [it for it in known if _get_family(it) in GPU_FAMILIES and _fits(it.shape, machine)]
    with_gpus = _spread(_pick_shapes(gpus), NUM_GPU_TYPES)
    without = _spread(_pick_shapes(fitting), NUM_TYPES - len(with_gpus))
    chosen = [*without, *with_gpus] or plain[:1]
    return tuple(it.name for it in chosen)


def choose_llm_types(types: Iterable[InstanceType], machine: Shape, most: int) -> tuple[str, ...]:
    """Choose a few types for an LLM: types with accelerators, or the largest without."""
    known = list(types)
    chosen = choose_instance_types(known, machine)
    with_gpus = [it.name for it in known if it.name in chosen and it.shape.accelerators]
    return tuple(with_gpus or chosen)[-most:]


def expand_ranges(ranges: Sequence[ConfigurationRange], most: int) -> tuple[Configuration, ...]:
    """The first `most` different configurations, taken from each range in turn."""
    found: list[Configuration] = []
    waiting = [_expand(it) for it in ranges]
    while waiting:
        for source in list(waiting):
            configuration = next(source, None)
            if configuration is None:
                waiting.remove(source)
            elif configuration not in found:
                found.append(configuration)
                if len(found) == most:
                    return tuple(found)
    return tuple(found)


def _expand(given: ConfigurationRange) -> Iterator[Configuration]:
    names = [name for name, _ in given.values]
    for chosen in itertools.product(*(values for _, values in given.values)):
        environment = dict(zip(names, chosen, strict=True))
        yield Configuration(instance_type=given.instance_type, environment=environment)


def _fits(shape: Shape, machine: Shape) -> bool:
    return (
        shape.cpus <= machine.cpus
        and shape.memory_bytes <= machine.memory_bytes * MEMORY_SLACK
        and shape.accelerators <= machine.accelerators
    )


def _get_family(known: InstanceType) -> str:
    return known.name.removeprefix("ml.").partition(".")[0]


def _get_size(known: InstanceType) -> tuple[int, float, int, str]:
    shape = known.shape
    return shape.accelerators, shape.cpus, shape.memory_bytes, known.name


def _pick_shapes(types: Iterable[InstanceType]) -> list[InstanceType]:
    """The first type of each shape."""
    found: dict[Shape, InstanceType] = {}
    for known in types:
        found.setdefault(known.shape, known)
    return list(found.values())


def _spread(types: Sequence[InstanceType], most: int) -> list[InstanceType]:
    """At most `most` types at even distances, with the first and the last."""
    if len(types) <= most:
        return list(types)
    if most == 1:
        return [types[-1]]
    places = {round(number * (len(types) - 1) / (most - 1)) for number in range(most)}
    return [types[it] for it in sorted(places)]
