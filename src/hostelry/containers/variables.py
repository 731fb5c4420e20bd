"""Variables that several model servers read. Pure."""

import math
from collections.abc import Mapping

from hostelry.base.errors import TerminalError

MIB = 1 << 20
OWN_MODEL_DIR = "/opt/ml/model"
MAX_PAYLOAD = "SAGEMAKER_MAX_PAYLOAD_IN_MB"


def reserved_cpus(env: Mapping[str, str], machine_cpus: int) -> float:
    """The CPUs that the copy has reserved, or without a reservation all of the machine."""
    try:
        reserved = float(env.get("HOSTELRY_CPUS", ""))
    except ValueError:
        return machine_cpus
    return reserved if 0 < reserved < math.inf else machine_cpus


def whole(env: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """The whole number of a variable. Raises TerminalError outside `least` to `most`."""
    text = env.get(name, "").strip()
    if not text:
        return default
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not least <= value <= most:
        raise TerminalError(f"{name} is {text[:40]!r}; it must be a number from {least} to {most}")
    return value
