"""Which processes of a supervisor that is gone go on, and which are replaced. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

CHANGED = "its program or its configuration has changed"
UNKNOWN = "nobody knows what it was started by"
UNWANTED = "it is not wanted any more"


class Act(Enum):
    """What is done about a process."""

    START = "start"  # none runs
    ADOPT = "adopt"  # it goes on as it is
    REPLACE = "replace"  # it is stopped in good order, and started anew
    END = "end"  # it is stopped in good order


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of a process, and why where it does not go on."""

    act: Act
    why: str = ""


def fates(found: Mapping[str, str | None], wanted: Mapping[str, str]) -> dict[str, Fate]:
    """The fate of each process that runs or is wanted.

    Args:
        found: the name of each live process -> the digest of what it was started by, None where
            nobody knows.
        wanted: the name of each process there should be -> the digest it would be started by.
    """
    decided = {name: _fate(found, name, digest) for name, digest in wanted.items()}
    unwanted = {name: Fate(act=Act.END, why=UNWANTED) for name in found if name not in wanted}
    return decided | unwanted


def _fate(found: Mapping[str, str | None], name: str, digest: str) -> Fate:
    if name not in found:
        return Fate(act=Act.START)
    if found[name] is None:
        return Fate(act=Act.REPLACE, why=UNKNOWN)
    return Fate(act=Act.ADOPT) if found[name] == digest else Fate(act=Act.REPLACE, why=CHANGED)


def adoption_sentence(decided: Mapping[str, Fate]) -> str | None:
    """What the operator reads of a start that found something running; None where it did not."""
    adopted = [name for name, fate in decided.items() if fate.act is Act.ADOPT]
    others = [
        f"{name} is {'ended' if fate.act is Act.END else 'started again'}: {fate.why}"
        for name, fate in decided.items()
        if fate.act in (Act.REPLACE, Act.END)
    ]
    if not adopted and not others:
        return None
    went_on = f"adopted {', '.join(adopted)}" if adopted else "adopted nothing of what ran"
    return "; ".join([went_on, *others])
