"""Rules for forking a copy from a warm interpreter. Pure.

A forked copy has imported its libraries before it gets its environment. That is safe only for
variables that are not read during the import, which are listed here. A container that sets another
variable is started cold, which is slower and always right.
"""

from collections.abc import Mapping, Sequence

from hostelry.fleet.artifacts.sources import find_hub_model_in
from hostelry.fleet.host.processes import MARKER_VARIABLE
from hostelry.fleet.rules.given_variables import DEVICE_VARIABLES
from hostelry.fleet.rules.images import (
    FRAMEWORK_COMMAND,
    LMI_COMMAND,
    TGI_COMMAND,
    VLLM_COMMAND,
)
from hostelry.fleet.rules.interpreter import PYTHON_VARIABLES
from hostelry.fleet.rules.limits import THREAD_VARIABLES, thread_variables

# Modules to import by command. The main() of the first module runs the copy.
WARM_MODULES: Mapping[tuple[str, ...], tuple[str, ...]] = dict.fromkeys(
    (LMI_COMMAND, VLLM_COMMAND, TGI_COMMAND),
    ("hostelry.containers.lmi.__main__", "hostelry.containers.lmi.engine.process"),
)
READ_LATE_PREFIXES = ("OPTION_", "SERVING_", "SM_VLLM_", "SAGEMAKER_", "HOSTELRY_", "AWS_")
# The engine sets thread counts again, devices are enumerated on first use, and the interpreter's
# own options decided where modules are searched.
READ_LATE = frozenset(
    {
        *("HF_MODEL_ID", "HF_TASK", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
        *THREAD_VARIABLES,
        *DEVICE_VARIABLES,
        *PYTHON_VARIABLES,
    }
)
MARKER_ROOM = 4096  # bytes for the path of a copy's folder


def build_parent_environment(operator: Mapping[str, str]) -> dict[str, str]:
    """The variables of a warm interpreter: the operator's for every copy, without secrets.

    Each copy overwrites the marker's value with its own folder.
    """
    shared = {name: value for name, value in operator.items() if name not in READ_LATE}
    return {
        **shared,
        **thread_variables(1),
        "PYTHONUNBUFFERED": "1",
        MARKER_VARIABLE: "-" * MARKER_ROOM,
    }


def parse_framework(argv: Sequence[str]) -> tuple[str, str] | None:
    """The framework and the runtime of a framework model server, or None for other programs."""
    num_parts = len(FRAMEWORK_COMMAND)
    match tuple(argv[num_parts:]):
        case ("--framework", framework, "--runtime", runtime):
            return (framework, runtime) if tuple(argv[:num_parts]) == FRAMEWORK_COMMAND else None
    return None


def find_cold_cause(parent: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    """Why a copy with `environment` cannot be forked from `parent`, or None if it can.

    a variable differs that may be read during the import   -> cold
    the folder does not fit into the marker                 -> cold
    otherwise                                               -> warm
    """
    differing = {
        name
        for name in parent.keys() | environment.keys()
        if parent.get(name) != environment.get(name) and not _is_read_late(name)
    }
    if differing:
        return f"{', '.join(sorted(differing))} may be read while libraries are loaded"
    if len(environment.get(MARKER_VARIABLE, "").encode()) >= MARKER_ROOM:
        return f"the path of its folder has {MARKER_ROOM} bytes or more"
    return None


def find_home_cause(environment: Mapping[str, str]) -> str | None:
    """Why a copy whose HOME is not the interpreter's cannot be forked, or None if it can.

    Libraries derive the folder of downloads from HOME when they are imported.
    """
    if find_hub_model_in(environment) is None:
        return None
    return "the folder of downloads follows HOME, which is the copy's own"


def _is_read_late(name: str) -> bool:
    return name in READ_LATE or name.startswith(READ_LATE_PREFIXES)
