"""The option --fleet and those that go with it, checked. Imports no Ray."""

import importlib.util
from pathlib import Path
from typing import Any

from hostelry.base.errors import TerminalError, UsageError

LOCAL, RAY = "local", "ray"
RAY_MISSING = "--fleet ray needs Ray on this machine: pip install 'hostelry[ray]'"


def check_fleet(
    fleet: str, ray_address: str | None, runtime_env: Path | None, node_dir: Path | None
) -> None:
    """Raise TerminalError for an unknown fleet, or for options that it does not take."""
    if fleet not in (LOCAL, RAY):
        raise UsageError(f"--fleet {fleet}: expected {LOCAL} or {RAY}")
    if fleet == LOCAL:
        for flag, value in (
            ("--ray-address", ray_address),
            ("--ray-runtime-env", runtime_env),
            ("--node-dir", node_dir),
        ):
            if value is not None:
                raise UsageError(f"{flag} {value} is for --fleet {RAY} only")
        return
    if importlib.util.find_spec("ray") is None:
        raise TerminalError(RAY_MISSING)
    if ray_address is not None and "://" in ray_address:
        raise UsageError(
            f"--ray-address {ray_address}: expected HOST:PORT of the cluster's head. This machine "
            "must be a node of the cluster; it may offer nothing (ray start --num-cpus=0)"
        )
    if runtime_env is not None:
        read_runtime_env(runtime_env)


def read_runtime_env(path: Path) -> dict[str, Any]:
    """Ray's runtime environment in the file. Raises TerminalError if the file is invalid."""
    import json  # which a local fleet does without

    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"--ray-runtime-env {path}: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(it, str) for it in found):
        raise UsageError(f"--ray-runtime-env {path}: expected a mapping, as Ray takes it")
    return found


def absolute(path: Path | None) -> str | None:
    """The path for processes with another working folder, or None."""
    return None if path is None else str(path.absolute())
