"""Mark of the function of `model.py` after generation, and the values of the rolling batch."""

from collections.abc import Callable
from typing import Any, TypeVar

from hostelry.containers.lmi.code.djl_python.request_io import (
    RequestOutput,
    Sequence,
    TextGenerationOutput,
    Token,
)

__all__ = ["RequestOutput", "Sequence", "TextGenerationOutput", "Token", "output_formatter"]

F = TypeVar("F", bound=Callable[..., Any])


def output_formatter(function: F) -> F:
    """Mark the function that changes a response."""
    function.__dict__["is_output_formatter"] = True
    return function
