"""Checks on every value of a request that must hold before it may be stored."""

import math
from collections.abc import Mapping
from typing import Any

from hostelry.base.errors import validation_error


def check_values(value: Any, path: str = "") -> None:
    """Refuse numbers that are not finite and text that is not Unicode: neither can be stored."""
    if isinstance(value, Mapping):
        for name, member in value.items():
            check_values(name, path)
            check_values(member, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for number, member in enumerate(value, start=1):
            check_values(member, f"{path}.{number}")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise validation_error(f"Value {value} at '{path}' must be a finite number.")
    elif isinstance(value, str):
        check_text(value, path)


def check_text(text: str, path: str) -> None:
    """Refuse lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        where = f" at '{path}'" if path else ""
        raise validation_error(f"Text{where} is not valid Unicode: {text!a}.") from None
