"""Shapes of instance types by name. The figures in shapes.toml are declared, not measured."""

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec

from hostelry.base.json import convert
from hostelry.domain.shape import Device, InstanceType, Shape

MIB, GIB = 1024**2, 1024**3


class _Default(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpus: float
    memory_gib: float
    accelerators: int


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """shapes.toml, which explains each table."""

    default: _Default
    ladder: dict[str, int]
    gib_per_cpu: dict[str, float]
    sizes: dict[str, dict[str, tuple[float, float, int]]]
    devices: dict[str, tuple[str, str, int]]


def get_shape(instance_type: str) -> Shape:
    """The declared shape of ``ml.FAMILY.SIZE``, or the default shape for a name without a row.

    Source: AWS's instance type pages, with types as in botocore's ProductionVariantInstanceType.
    """
    return declared_shape(instance_type) or default_shape()


def describe_unknown_type(name: str) -> str | None:
    """What is wrong with the name of an instance type, with similar names. None: it is known."""
    known = instance_types()
    if name in known:
        return None
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "for example ml.m5.large"
    return f"{name} is not a known type of SageMaker: {hint}"


def default_shape() -> Shape:
    """The shape assumed for an instance type that is not declared."""
    default = _table().default
    return _shape(default.cpus, default.memory_gib, default.accelerators)


def declared_shape(instance_type: str) -> Shape | None:
    """The declared shape of exactly this type, or None."""
    _, _, rest = instance_type.partition("ml.")
    family, _, size = rest.partition(".")
    table = _table()
    row = table.sizes.get(family, {}).get(size)
    if row is not None:
        return _shape(*row)
    if family in table.gib_per_cpu and size in table.ladder:
        cpus = table.ladder[size]
        return _shape(cpus, cpus * table.gib_per_cpu[family], 0)
    return None


@cache
def instance_types() -> Mapping[str, InstanceType]:
    """Every instance type that the table declares, by its name."""
    table = _table()
    families = {family: list(table.ladder) for family in table.gib_per_cpu} | {
        family: list(sizes) for family, sizes in table.sizes.items()
    }
    names = [
        (family, f"ml.{family}.{size}") for family, sizes in families.items() for size in sizes
    ]
    return {
        name: InstanceType(name=name, shape=get_shape(name), device=_device(family))
        for family, name in names
    }


def _device(family: str) -> Device | None:
    row = _table().devices.get(family)
    return row and Device(maker=row[0], name=row[1], memory_bytes=row[2] * MIB)


def _shape(cpus: float, memory_gib: float, accelerators: int) -> Shape:
    return Shape(cpus=cpus, memory_bytes=int(memory_gib * GIB), accelerators=accelerators)


@cache
def _table() -> _Table:
    text = files("hostelry.fleet").joinpath("shapes.toml").read_text(encoding="utf-8")
    return convert(tomllib.loads(text), _Table)
