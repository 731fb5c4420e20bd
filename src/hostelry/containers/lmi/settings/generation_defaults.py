"""Defaults of sampling by generation_config.json and options. Pure but for `model_defaults`.

    generation_config        defaults                                     bound of every answer
    -----------------        -------------------------------------------  ----------------------
    auto                     the model folder's file, then the overrides  that of the overrides
    vllm                     the overrides                                that of the overrides
    a folder in the model's  its file, then the overrides                 that of file and overrides

`do_sample` of the file is not read: a temperature of 0 is greedy.
Source: vLLM's ModelConfig.get_diff_sampling_param and its OpenAI serving classes.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostelry.containers.lmi.artifact_path import path_inside
from hostelry.containers.lmi.request.sampling import MAX_TEMPERATURE, SMALLEST
from hostelry.containers.lmi.request.sampling_defaults import SamplingDefaults
from hostelry.containers.lmi.settings.config import LmiConfig
from hostelry.containers.lmi.settings.option_reader import MAX_INTEGER, ConfigurationError
from hostelry.engine.request import (
    LEAST_REPETITION_PENALTY,
    MAX_TOKEN_ID,
    MOST_REPETITION_PENALTY,
)

FILE = "generation_config.json"
OVERRIDES = "override_generation_config"
SHOWN_CHARACTERS = 80

# Name -> smallest and largest value; whole numbers where both are.
RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, float(MAX_TEMPERATURE)),
    "top_k": (-1, MAX_TOKEN_ID),
    "top_p": (SMALLEST, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (LEAST_REPETITION_PENALTY, MOST_REPETITION_PENALTY),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "max_new_tokens": (1, MAX_INTEGER),
}


def model_defaults(config: LmiConfig, folder: Path) -> SamplingDefaults:
    """The defaults of the model in `folder`. Raises ConfigurationError."""
    overrides = config.generation_overrides
    if config.generation_config == "vllm":
        return sampling_defaults({}, overrides, OVERRIDES, bounds_all=False)
    if config.generation_config == "auto":
        given = read_file(folder / FILE)
        return sampling_defaults(given, overrides, FILE, bounds_all=False)
    inside = path_inside(config.generation_config, config.model_dir)
    if inside is None or not (inside / FILE).is_file():
        raise ConfigurationError(
            f"generation_config is {config.generation_config[:SHOWN_CHARACTERS]!r}; it must be "
            f"auto, vllm, or a folder inside the model folder that holds {FILE}"
        )
    return sampling_defaults(read_file(inside / FILE), overrides, FILE, bounds_all=True)


def sampling_defaults(
    given: Mapping[str, Any], overrides: Mapping[str, Any], source: str, *, bounds_all: bool
) -> SamplingDefaults:
    """The defaults of two parsed configurations, the second one winning.

    `source` names the first one in messages. Raises ConfigurationError for a value out of range.
    """
    values = checked(given, source) | checked(overrides, OVERRIDES)
    most = values.get("max_new_tokens") if bounds_all else overrides.get("max_new_tokens")
    top_k = max(0, values.pop("top_k", 0))
    return SamplingDefaults(**values, top_k=top_k, most_new_tokens=most)


def checked(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The members that are defaults of sampling and not null, each in its range."""
    found: dict[str, Any] = {}
    for name, (low, high) in RANGES.items():
        value = given.get(name)
        if value is None:
            continue
        whole = isinstance(low, int)
        kinds = int if whole else (int, float)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            raise ConfigurationError(
                f"{name} in {source} is {str(value)[:SHOWN_CHARACTERS]!r}; it must be {kind} from "
                f"{low:g} to {high:g}. option.generation_config=vllm leaves the file unread"
            )
        found[name] = value if whole else float(value)
    return found


def read_file(path: Path) -> Mapping[str, Any]:
    """The members of a generation_config.json; none where there is no file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path.name} is no JSON object")
    return value
