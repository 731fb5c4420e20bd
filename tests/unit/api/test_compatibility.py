"""docs/compatibility.md: complete, and true to the code."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from botocore.model import ListShape, MapShape, Shape, StructureShape

from hostelry.api.compatibility import (
    FATES,
    RUNTIME_OPERATIONS,
    SERVICES,
    fields_section,
    get_notes,
    main,
    operations_table,
    page,
)
from hostelry.api.operations import OPERATIONS, REFUSED
from hostelry.aws.models import operation_model, service_model, service_operations

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs" / "compatibility.md"
SOURCES = ROOT / "src" / "hostelry"
# Rooms whose literals do not show that an operation reads a field.
ELSEWHERE = ("aws", "engine", "containers", "cli", "chaos", "sim")
CONTROL_SERVICES = [service for service in SERVICES if service != "sagemaker-runtime"]


def test_the_page_shows_what_the_code_does() -> None:
    text = DOCS.read_text(encoding="utf-8")
    written = page() + "\n"
    assert text == written, "run: python -m hostelry.api.compatibility docs/compatibility.md"


def test_the_page_is_written_to_a_file(tmp_path: Path) -> None:
    main(tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text(encoding="utf-8").startswith("# Compatibility\n")


def test_another_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Hostelry\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="another file"):
        main(tmp_path / "README.md")
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "# Hostelry\n"


def test_every_operation_has_its_name_from_the_service_model() -> None:
    for service, operation in (*OPERATIONS, *REFUSED):
        assert operation in service_operations(service)
    assert set(RUNTIME_OPERATIONS) <= set(service_operations("sagemaker-runtime"))
    assert not OPERATIONS.keys() & REFUSED.keys()


def test_the_table_lists_what_is_served_and_what_is_not() -> None:
    rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in operations_table().split("\n")}
    served, missing = rows["| sagemaker"]
    assert "CreateInferenceComponent" in served
    assert "CreateInferenceComponent" not in missing
    assert "every other operation" in missing
    served, missing = rows["| application-autoscaling"]
    assert "PutScalingPolicy" in served
    assert missing == "GetPredictiveScalingForecast |"
    assert rows["| sagemaker-runtime"][0] == (
        "InvokeEndpoint, InvokeEndpointAsync, InvokeEndpointWithResponseStream"
    )


@pytest.mark.parametrize("service", CONTROL_SERVICES)
def test_a_note_names_a_member_of_a_shape_that_an_operation_reads(service: str) -> None:
    known = {f"{shape}.{member}" for shape, member, _ in fields_of(service)}
    notes = get_notes(service)
    assert [
        key for fate in FATES for key in notes[fate] if key.partition("=")[0] not in known
    ] == []


@pytest.mark.parametrize("service", CONTROL_SERVICES)
def test_no_field_is_ignored_without_a_note(service: str) -> None:
    """A field that no literal of the source names, and no note, is dropped in silence."""
    notes = get_notes(service)
    noted = {key for fate in FATES for key in notes[fate]}
    named = literals()
    silent = {
        f"{shape}.{member}"
        for shape, member, above in fields_of(service)
        if member not in named and not noted & {f"{shape}.{member}", *above}
    }
    assert sorted(silent) == []


def test_a_field_with_a_note_has_a_row() -> None:
    section = fields_section("sagemaker")
    assert "| CreateEndpointConfigInput.ExplainerConfig | refused |" in section
    assert fields_section("sagemaker-runtime") == ""


@cache
def literals() -> frozenset[str]:
    """Every word in a string of the source, and in the names of its docstrings, too."""
    found: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        if path.relative_to(SOURCES).parts[0] in ELSEWHERE or path.name == "compatibility.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(node.value.replace(".", " ").replace("=", " ").split())
    return frozenset(found)


def fields_of(service: str) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Shape and member of every input field, and the fields around it as ``SHAPE.MEMBER``."""
    for of, operation in OPERATIONS:
        shape = operation_model(of, operation).input_shape if of == service else None
        if shape is not None:
            yield from members_of(shape, frozenset())


def members_of(
    shape: Shape, above: frozenset[str], entered: frozenset[str] = frozenset()
) -> Iterator[tuple[str, str, frozenset[str]]]:
    if isinstance(shape, ListShape):
        yield from members_of(shape.member, above, entered)
    elif isinstance(shape, MapShape):
        yield from members_of(shape.value, above, entered)
    elif isinstance(shape, StructureShape) and shape.name not in entered:
        for name, member in shape.members.items():
            yield shape.name, name, above
            around = above | {f"{shape.name}.{name}"}
            yield from members_of(member, around, entered | {shape.name})


def test_every_service_that_is_read_has_a_model() -> None:
    assert all(service_model(service).operation_names for service in CONTROL_SERVICES)
