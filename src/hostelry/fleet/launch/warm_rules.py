"""Which copies may be forked from a warm interpreter, from plain values.

A forked copy has imported its libraries before it got its environment. That is the same as the
other order only for variables that nothing reads while it is imported: the list here. A container
that sets any other is started cold, which is slower and never wrong.
"""

from collections.abc import Mapping

from hostelry.fleet.artifacts.sources import hub_model_of
from hostelry.fleet.host.processes import MARKER_VARIABLE
from hostelry.fleet.rules.given_variables import DEVICE_VARIABLES
from hostelry.fleet.rules.images import LMI_COMMAND
from hostelry.fleet.rules.interpreter import PYTHON_VARIABLES
from hostelry.fleet.rules.limits import THREAD_VARIABLES, thread_variables

# What a copy of each command imports; the first module is the one whose main() runs it.
WARM_MODULES: Mapping[tuple[str, ...], tuple[str, ...]] = {
    LMI_COMMAND: ("hostelry.containers.lmi.__main__", "hostelry.containers.lmi.engine.process"),
}
READ_LATE_PREFIXES = ("OPTION_", "SERVING_", "SAGEMAKER_", "HOSTELRY_", "AWS_")
# Thread counts are set again by the engine, devices are looked for when the first is used. Where
# modules are searched for was decided by the interpreter's own options.
READ_LATE = frozenset(
    {
        *("HF_MODEL_ID", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
        *THREAD_VARIABLES,
        *DEVICE_VARIABLES,
        *PYTHON_VARIABLES,
    }
)
MARKER_ROOM = 4096  # the longest path of a copy's folder


def parent_environment(operator: Mapping[str, str]) -> dict[str, str]:
    """The variables of a warm interpreter: what every copy gets of the operator's, and no secret.

    The marker's room is filled by each copy with its own folder.
    """
    shared = {name: value for name, value in operator.items() if name not in READ_LATE}
    return {
        **shared,
        **thread_variables(1),
        "PYTHONUNBUFFERED": "1",
        MARKER_VARIABLE: "-" * MARKER_ROOM,
    }


def cold_cause(parent: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    """Why a copy with `environment` cannot be forked from `parent`; None when it can."""
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


def own_home_cause(environment: Mapping[str, str]) -> str | None:
    """Why a copy whose HOME is not the interpreter's cannot be forked; None when it can.

    Libraries choose the folder of downloads from a hub when they are loaded, by HOME.
    """
    if hub_model_of(environment) is None:
        return None
    return "the folder of downloads follows HOME, which is the copy's own"


def _is_read_late(name: str) -> bool:
    return name in READ_LATE or name.startswith(READ_LATE_PREFIXES)
