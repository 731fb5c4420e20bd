"""Checks of a value against its shape, by the rules of botocore and of the service model."""

from typing import Any

from botocore.validate import ParamValidator

from hostelry.aws.constraints import compile_pattern
from hostelry.aws.models import OPEN_ENUMS


def check_value(shape: Any, value: Any) -> None:
    """Assert that botocore would send or return `value`: types, required and unknown members."""
    if shape is None:
        assert value == {}
        return
    report = ParamValidator().validate(value, shape)
    assert not report.has_errors(), report.generate_report()
    check_members(shape, value, shape.name)


def check_members(shape: Any, value: Any, path: str) -> None:
    """Assert the rules that botocore does not check: unknown members, patterns, enums, lengths."""
    if shape.type_name == "structure":
        assert not set(value) - set(shape.members), f"{path}: {set(value) - set(shape.members)}"
        for name, member in value.items():
            check_members(shape.members[name], member, f"{path}.{name}")
    elif shape.type_name == "list":
        for member in value:
            check_members(shape.member, member, f"{path}[]")
    elif shape.type_name == "string":
        check_string(shape, value, path)


def check_string(shape: Any, value: str, path: str) -> None:
    enum = None if shape.name in OPEN_ENUMS else getattr(shape, "enum", None)
    assert not enum or value in enum, f"{path}: {value}"
    pattern = shape.metadata.get("pattern")
    if pattern:
        assert compile_pattern(pattern).fullmatch(value), (
            f"{path}: {value!r} does not match {pattern}"
        )
    assert len(value) <= shape.metadata.get("max", 10**9), path
