"""Options in the place of members of config.json: hf_overrides, rope_scaling, rope_theta.

The engine reads a folder, so it is given one with links to the model's files and a config.json of
its own (`overlay`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostelry.containers.lmi.settings.option_reader import ConfigurationError

FILE = "config.json"
ROPE = ("rope_scaling", "rope_parameters", "rope_theta")


def overridden(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a config.json with `overrides` in place.

    A rope given by either of its two names replaces the other one. Its base stays where only the
    scaling is given, and the scaling where only the base is.
    """
    found = {**config, **overrides}
    if not overrides.keys() & set(ROPE):
        return found
    former = rope_of(config)
    rope = rope_of(overrides) if overrides.keys() & set(ROPE[:2]) else former
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


def rope_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The rope's parameters under either name; none where it has none."""
    given = (config.get(name) for name in ROPE[:2])
    return next((dict(it) for it in given if isinstance(it, dict) and it), {})


def overlay(folder: Path, overrides: Mapping[str, Any], scratch: Path) -> Path:
    """A folder in `scratch` like `folder`, with `overrides` in its config.json.

    `folder` itself where there are none. Raises ConfigurationError.
    """
    if not overrides:
        return folder
    try:
        config = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{FILE} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigurationError(f"{FILE} is no JSON object")
    made = scratch / "model"
    made.mkdir()
    for path in folder.iterdir():
        if path.name != FILE:
            (made / path.name).symlink_to(path.absolute())
    (made / FILE).write_text(json.dumps(overridden(config, overrides)), encoding="utf-8")
    return made
