"""Adoption of the processes that an earlier supervisor has left running. Pure.

| runs | desired | digests | decision |
| --- | --- | --- | --- |
| no | yes | | START |
| yes | yes | equal | ADOPT |
| yes | yes | differ | REPLACE: the program or its configuration has changed |
| yes | yes | the running one is unknown | REPLACE |
| yes | no | | END |
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

CHANGED = "its program or its configuration has changed"
UNKNOWN = "it is unknown what it was started by"  # by which program and configuration
NOT_DESIRED = "it is not needed any more"


class AdoptionAction(Enum):
    """The action on one process."""

    START = "start"
    ADOPT = "adopt"  # supervise the running process
    REPLACE = "replace"  # stop it with its grace period, and start it again
    END = "end"  # stop it with its grace period


class AdoptionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The action on one process, and the reason if the action stops it."""

    action: AdoptionAction
    why: str = ""


def decide_adoption(
    running: Mapping[str, str | None], desired: Mapping[str, str]
) -> dict[str, AdoptionDecision]:
    """The decision on each process that runs or is desired, by name.

    Args:
        running: the digest of each live process, or None if it is unknown.
        desired: the present digest of each process of the platform.
    """
    decided = {name: _decide(running, name, digest) for name, digest in desired.items()}
    end = AdoptionDecision(action=AdoptionAction.END, why=NOT_DESIRED)
    return decided | {name: end for name in running if name not in desired}


def _decide(running: Mapping[str, str | None], name: str, digest: str) -> AdoptionDecision:
    if name not in running:
        return AdoptionDecision(action=AdoptionAction.START)
    if running[name] == digest:
        return AdoptionDecision(action=AdoptionAction.ADOPT)
    why = UNKNOWN if running[name] is None else CHANGED
    return AdoptionDecision(action=AdoptionAction.REPLACE, why=why)


def adoption_sentence(decided: Mapping[str, AdoptionDecision]) -> str | None:
    """A sentence for the operator about the processes of an earlier `up`, or None without any."""
    adopted = [name for name, it in decided.items() if it.action is AdoptionAction.ADOPT]
    others = [
        f"{name} is {'ended' if it.action is AdoptionAction.END else 'started again'}: {it.why}"
        for name, it in decided.items()
        if it.why
    ]
    if not adopted and not others:
        return None
    first = f"adopted {', '.join(adopted)}" if adopted else "adopted nothing of what ran"
    return "; ".join([first, *others])
