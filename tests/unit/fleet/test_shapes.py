from pathlib import Path

import botocore.session
import pytest
from tests.cases import case, cases

from hostelry.domain.shape import Shape
from hostelry.fleet.shapes import GIB, declared_shape, default_shape, get_shape


def instance_types() -> list[str]:
    service = botocore.session.get_session().get_service_model("sagemaker")
    return list(service.shape_for("ProductionVariantInstanceType").enum)


def test_every_instance_type_of_the_api_is_declared() -> None:
    types = instance_types()
    assert len(types) > 250
    assert [name for name in types if declared_shape(name) is None] == []


@pytest.mark.parametrize("name", [it for it in instance_types() if it[3] in "gp"])
def test_accelerated_families_have_accelerators(name: str) -> None:
    assert get_shape(name).accelerators >= 1


@cases(
    "name, cpus, memory_gib, accelerators",
    case("general purpose: 4 GiB a vCPU", "ml.m5.xlarge", 4, 16, 0),
    case("compute: 2 GiB a vCPU", "ml.c5.9xlarge", 36, 72, 0),
    case("memory: 8 GiB a vCPU", "ml.r7gd.medium", 1, 8, 0),
    case("a fraction of a GiB", "ml.c4.large", 2, 3.75, 0),
    case("four GPUs", "ml.g5.12xlarge", 48, 192, 4),
    case("more vCPUs and fewer GPUs", "ml.g5.16xlarge", 64, 256, 1),
    case("eight GPUs", "ml.p4d.24xlarge", 96, 1152, 8),
    case("Inferentia chips", "ml.inf2.48xlarge", 192, 768, 12),
)
def test_declared_figures(name: str, cpus: float, memory_gib: float, accelerators: int) -> None:
    expected = Shape(cpus=cpus, memory_bytes=int(memory_gib * GIB), accelerators=accelerators)
    assert get_shape(name) == expected


@cases(
    "name",
    case("a size its family does not have", "ml.m5.900xlarge"),
    case("an unknown family", "ml.z9.large"),
    case("no instance type at all", "local"),
    case("nothing", ""),
    case("a type without its prefix", "m5.large"),
    case("a family without a size", "ml.m5"),
)
def test_any_other_name_gets_the_default_shape(name: str) -> None:
    assert declared_shape(name) is None
    assert get_shape(name) == default_shape()
    assert default_shape().cpus > 0


def test_the_file_states_that_its_figures_are_declared() -> None:
    import hostelry.fleet

    text = Path(hostelry.fleet.__file__).with_name("shapes.toml").read_text()
    assert "DECLARED" in text
    assert "not measured" in text
