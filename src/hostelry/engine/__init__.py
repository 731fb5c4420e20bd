"""The multi-LoRA LLM engine: knows tokens, not AWS. It is also a library.

A request's tokens depend on its prompt, its adapter's content, its sampling values and its seed,
and on nothing else. On a CPU in fp32 with the native kernels its logits are bitwise equal alone and
in any batch, in any chunks of its prompt, after a preemption, and with the beginning of its prompt
from the prefix cache. In fp32 its greedy tokens equal those from transformers + PEFT.

    from hostelry.engine import Engine, EngineConfig, Request, SamplingParams
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported on first use: a process that needs the values alone loads no torch
    from hostelry.engine.engine import (
        AdapterError,
        Engine,
        EngineConfig,
        EngineStats,
        GrammarError,
        PinBudgetError,
        QuotaExceededError,
        ServerFullError,
        TenantPolicies,
        TenantPolicy,
        UnknownAdapterError,
        UnsupportedModelError,
    )
    from hostelry.engine.request import FinishReason, Output, Request, SamplingParams, Structure

__all__ = [
    "AdapterError",
    "Engine",
    "EngineConfig",
    "EngineStats",
    "FinishReason",
    "GrammarError",
    "Output",
    "PinBudgetError",
    "QuotaExceededError",
    "Request",
    "SamplingParams",
    "ServerFullError",
    "Structure",
    "TenantPolicies",
    "TenantPolicy",
    "UnknownAdapterError",
    "UnsupportedModelError",
]

_VALUES = ("FinishReason", "Output", "Request", "SamplingParams", "Structure")


def __getattr__(name: str) -> Any:
    """The public names, from the module they are defined in."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "hostelry.engine.request" if name in _VALUES else "hostelry.engine.engine"
    return getattr(import_module(module), name)
