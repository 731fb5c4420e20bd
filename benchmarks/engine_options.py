"""Engine settings from plain values, without settings that this engine does not have."""

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hostelry.engine.config import EngineConfig


def engine_config(options: Mapping[str, Any]) -> EngineConfig:
    """The settings in `options`, nested ones as mappings.

    Raises ValueError naming those that the engine does not know, or a value that it refuses.
    """
    if missing := unknown_options(options):
        raise ValueError(f"this engine has no setting {', '.join(missing)}")
    return msgspec.convert(dict(options), EngineConfig)


def unknown_options(options: Mapping[str, Any]) -> list[str]:
    """Names in `options` that are no settings of the engine."""
    known = {field.name for field in dataclasses.fields(EngineConfig)}
    return sorted(set(options) - known)


def add_option_argument(parser: argparse.ArgumentParser) -> None:
    """Let ``--option NAME=JSON`` set anything of the engine's."""
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=JSON", help="an engine setting"
    )


def parsed_options(pairs: Sequence[str]) -> dict[str, Any]:
    """The values of ``--option``; raises ValueError for what is no NAME=JSON."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--option {pair!r} is not NAME=JSON")
        options[name] = json.loads(value)
    return options
