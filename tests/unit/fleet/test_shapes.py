from pathlib import Path

import botocore.session
import pytest

from hostelry.domain.shape import Shape
from hostelry.fleet.shapes import GIB, declared_shape, default_shape, shape_of


def instance_types() -> list[str]:
    service = botocore.session.get_session().get_service_model("sagemaker")
    return list(service.shape_for("ProductionVariantInstanceType").enum)


def test_every_instance_type_of_the_api_is_declared() -> None:
    types = instance_types()
    assert len(types) > 250
    assert [name for name in types if declared_shape(name) is None] == []


@pytest.mark.parametrize("name", [it for it in instance_types() if it[3] in "gp"])
def test_accelerated_families_have_accelerators(name: str) -> None:
    assert shape_of(name).accelerators >= 1


@pytest.mark.parametrize(
    ("name", "cpus", "memory_gib", "accelerators"),
    [
        pytest.param("ml.m5.xlarge", 4, 16, 0, id="general purpose: 4 GiB a vCPU"),
        pytest.param("ml.c5.9xlarge", 36, 72, 0, id="compute: 2 GiB a vCPU"),
        pytest.param("ml.r7gd.medium", 1, 8, 0, id="memory: 8 GiB a vCPU"),
        pytest.param("ml.c4.large", 2, 3.75, 0, id="a fraction of a GiB"),
        pytest.param("ml.g5.12xlarge", 48, 192, 4, id="four GPUs"),
        pytest.param("ml.g5.16xlarge", 64, 256, 1, id="more vCPUs and fewer GPUs"),
        pytest.param("ml.p4d.24xlarge", 96, 1152, 8, id="eight GPUs"),
        pytest.param("ml.inf2.48xlarge", 192, 768, 12, id="Inferentia chips"),
    ],
)
def test_declared_figures(name: str, cpus: float, memory_gib: float, accelerators: int) -> None:
    expected = Shape(cpus=cpus, memory_bytes=int(memory_gib * GIB), accelerators=accelerators)
    assert shape_of(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("ml.m5.900xlarge", id="a size its family does not have"),
        pytest.param("ml.z9.large", id="an unknown family"),
        pytest.param("local", id="no instance type at all"),
        pytest.param("", id="nothing"),
        pytest.param("m5.large", id="a type without its prefix"),
        pytest.param("ml.m5", id="a family without a size"),
    ],
)
def test_any_other_name_gets_the_default_shape(name: str) -> None:
    assert declared_shape(name) is None
    assert shape_of(name) == default_shape()
    assert default_shape().cpus > 0


def test_the_file_states_that_its_figures_are_declared() -> None:
    import hostelry.fleet

    text = Path(hostelry.fleet.__file__).with_name("shapes.toml").read_text()
    assert "DECLARED" in text
    assert "not measured" in text
