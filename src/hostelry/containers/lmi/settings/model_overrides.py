"""Options that replace members of the model's config.json and generation_config.json.

The engine reads a folder, so `overlay` makes one with links to the model's files and another
config.json. Defaults of sampling:

    generation_config        defaults                                     bound of every answer
    -----------------        -------------------------------------------  ----------------------
    auto                     the model folder's file, then the overrides  the overrides' bound
    vllm                     the overrides                                the overrides' bound
    a folder in the model's  its file, then the overrides                 the bound of both

`do_sample` of the file is not read: a temperature of 0 is greedy.
Source: vLLM's ModelConfig.get_diff_sampling_param and its OpenAI serving classes.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostelry.containers.lmi.artifact_path import path_inside
from hostelry.containers.lmi.request.sampling import MAX_TEMPERATURE, SMALLEST, SamplingDefaults
from hostelry.containers.lmi.settings.config import LmiConfig
from hostelry.containers.lmi.settings.option_reader import MAX_INTEGER, ConfigurationError
from hostelry.engine.request import (
    LEAST_REPETITION_PENALTY,
    MAX_TOKEN_ID,
    MOST_REPETITION_PENALTY,
)

CONFIG_FILE = "config.json"
ROPE = ("rope_scaling", "rope_parameters", "rope_theta")
GENERATION_FILE = "generation_config.json"
OVERRIDES = "override_generation_config"
SHOWN_CHARACTERS = 80

# Name -> smallest and largest value. If both are whole numbers, the value must be whole.
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


def override_members(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a config.json with `overrides` in place.

    A rope may be given by either of two names, and replaces a rope with the other name. If only its
    scaling is given, the base stays, and if only its base is given, the scaling stays.
    """
    found = {**config, **overrides}
    if not overrides.keys() & set(ROPE):
        return found
    former = find_rope(config)
    rope = find_rope(overrides) if overrides.keys() & set(ROPE[:2]) else former
    bases = [overrides.get("rope_theta"), rope.get("rope_theta"), config.get("rope_theta")]
    base = next((it for it in (*bases, former.get("rope_theta")) if it is not None), None)
    if any(isinstance(it, dict) for it in rope.values()):
        raise ConfigurationError(
            "rope_scaling, rope_theta or hf_overrides: the model has a rope for each kind of "
            "layer; write rope_parameters of all of them into its config.json"
        )
    for name in ROPE:
        found.pop(name, None)
    given = {"rope_theta": base} if base is not None else {}
    return {**found, **given, **({"rope_scaling": {**rope, **given}} if rope else {})}


def find_rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """The rope's parameters under either name. Empty without a rope."""
    given = (config.get(name) for name in ROPE[:2])
    return next((dict(it) for it in given if isinstance(it, dict) and it), {})


def overlay(folder: Path, overrides: Mapping[str, Any], scratch: Path) -> Path:
    """A folder in `scratch` like `folder`, with `overrides` in its config.json.

    Returns `folder` itself without overrides. Raises ConfigurationError.
    """
    if not overrides:
        return folder
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{CONFIG_FILE} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigurationError(f"{CONFIG_FILE} is no JSON object")
    made = scratch / "model"
    made.mkdir()
    for path in folder.iterdir():
        if path.name != CONFIG_FILE:
            (made / path.name).symlink_to(path.absolute())
    (made / CONFIG_FILE).write_text(
        json.dumps(override_members(config, overrides)), encoding="utf-8"
    )
    return made


def model_defaults(config: LmiConfig, folder: Path) -> SamplingDefaults:
    """The defaults of the model in `folder`. Raises ConfigurationError."""
    overrides = config.generation_overrides
    if config.generation_config == "vllm":
        return sampling_defaults({}, overrides, OVERRIDES, bounds_all=False)
    if config.generation_config == "auto":
        given = read_file(folder / GENERATION_FILE)
        return sampling_defaults(given, overrides, GENERATION_FILE, bounds_all=False)
    inside = path_inside(config.generation_config, config.model_dir)
    if inside is None or not (inside / GENERATION_FILE).is_file():
        raise ConfigurationError(
            f"generation_config is {config.generation_config[:SHOWN_CHARACTERS]!r}; it must be "
            f"auto, vllm, or a folder inside the model folder that holds {GENERATION_FILE}"
        )
    return sampling_defaults(
        read_file(inside / GENERATION_FILE), overrides, GENERATION_FILE, bounds_all=True
    )


def sampling_defaults(
    given: Mapping[str, Any], overrides: Mapping[str, Any], source: str, *, bounds_all: bool
) -> SamplingDefaults:
    """The defaults of two parsed configurations, the second one winning.

    `source` names the first one in messages. Raises ConfigurationError for a value out of range.
    """
    values = check_defaults(given, source) | check_defaults(overrides, OVERRIDES)
    most = values.get("max_new_tokens") if bounds_all else overrides.get("max_new_tokens")
    top_k = max(0, values.pop("top_k", 0))
    return SamplingDefaults(**values, top_k=top_k, most_new_tokens=most)


def check_defaults(given: Mapping[str, Any], source: str) -> dict[str, Any]:
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
    """The members of a generation_config.json. Empty without the file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path.name} is no JSON object")
    return value
