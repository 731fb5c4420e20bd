"""Engine settings from plain values, told apart from settings this engine does not have."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from hostelry.engine.config import EngineConfig


def engine_config(options: Mapping[str, Any]) -> EngineConfig:
    """The settings in `options`; raises ValueError naming those that the engine does not know."""
    if missing := unknown_options(options):
        raise ValueError(f"this engine has no setting {', '.join(missing)}")
    return EngineConfig(**options)


def unknown_options(options: Mapping[str, Any]) -> list[str]:
    """Names in `options` that are no settings of the engine."""
    known = {field.name for field in dataclasses.fields(EngineConfig)}
    return sorted(set(options) - known)
