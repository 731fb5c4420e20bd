"""Marks of the functions of `model.py` before generation."""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

SAGEMAKER_ADAPTER_IDENTIFIER_HEADER = "X-Amzn-SageMaker-Adapter-Identifier"


def input_formatter(function: F) -> F:
    """Mark the function that changes a request's payload."""
    function.__dict__["is_input_formatter"] = True
    return function


def prediction_handler(function: F) -> F:
    """Mark a function of the handlers for scikit-learn and XGBoost, which are not served here."""
    function.__dict__["is_prediction_handler"] = True
    return function


def init_handler(function: F) -> F:
    """Mark a function of the handlers for scikit-learn and XGBoost, which are not served here."""
    function.__dict__["is_init_handler"] = True
    return function
