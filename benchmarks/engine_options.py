"""Engine settings from plain values. Settings that this engine does not have are refused."""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hostelry.engine.config import EngineConfig


def engine_config(options: Mapping[str, Any]) -> EngineConfig:
    """The settings in `options`, with nested settings as mappings.

    Raises ValueError naming the settings that the engine does not know, or a value that it refuses.
    """
    if missing := unknown_options(options):
        raise ValueError(f"this engine has no setting {', '.join(missing)}")
    return msgspec.convert(dict(options), EngineConfig)


def unknown_options(options: Mapping[str, Any]) -> list[str]:
    """Names in `options` that the engine does not have as settings."""
    known = set(EngineConfig.__struct_fields__)
    return sorted(set(options) - known)


def add_option_argument(parser: argparse.ArgumentParser) -> None:
    """Let ``--option NAME=JSON`` set any setting of the engine."""
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=JSON", help="an engine setting"
    )


def parsed_options(pairs: Sequence[str]) -> dict[str, Any]:
    """The values of ``--option``. Raises ValueError for an option that is not NAME=JSON."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--option {pair!r} is not NAME=JSON")
        options[name] = json.loads(value)
    return options
