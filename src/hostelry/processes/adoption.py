"""Adoption of the processes that a supervisor which is gone has left running. Pure.

| runs | desired | digests | decision |
| --- | --- | --- | --- |
| no | yes | | START |
| yes | yes | equal | ADOPT |
| yes | yes | differ | REPLACE: the program or its configuration has changed |
| yes | yes | the running one is unknown | REPLACE |
| yes | no | | END |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

CHANGED = "its program or its configuration has changed"
UNKNOWN = "it is unknown what it was started by"
NOT_DESIRED = "it is not needed any more"


class AdoptionAction(Enum):
    """The action on one process."""

    START = "start"
    ADOPT = "adopt"  # supervise it as it runs
    REPLACE = "replace"  # stop it in good order and start it again
    END = "end"  # stop it in good order


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionDecision:
    """The action on one process, and why where that stops it."""

    action: AdoptionAction
    why: str = ""


def decide_adoption(
    running: Mapping[str, str | None], desired: Mapping[str, str]
) -> dict[str, AdoptionDecision]:
    """The decision on each process that runs or is desired, by name.

    Args:
        running: the digest that each live process was started by; None where it is unknown.
        desired: the digest that each process of the platform would be started by now.
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
    """A sentence for the operator about what an earlier `up` left; None where it left nothing."""
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
