"""Allowance: how much worse a new version may be than the old one, and how sure a verdict is."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

# What may be given, and the most that each may be; alpha is more than 0.
MOST: Mapping[str, float] = {"errors": 1.0, "latency": 100.0, "alpha": 0.5, "divergence": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How much worse a version may be: errors by a share of requests, latency by a share of it.

    `divergence` is the share of a shadow's answers that may differ from production's; None: any.
    `alpha` is the probability of a wrong verdict, at most.
    """

    errors: float = 0.01
    latency: float = 0.25
    alpha: float = 0.01
    divergence: float | None = None


def allowance_of(given: Mapping[str, str], known: Collection[str] = tuple(MOST)) -> Allowance:
    """The allowance with these numbers, by name, of those that are `known` there.

    Raises ValueError that says what is wrong.
    """
    found: dict[str, float] = {}
    for name, text in given.items():
        if name not in known:
            raise ValueError(f'"{name}" is no setting; there are {", ".join(known)}')
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f'{name} is "{text}"; it must be a number') from None
        if not 0.0 <= value <= MOST[name] or (name == "alpha" and value == 0.0):
            least = "more than 0, at most" if name == "alpha" else "from 0 to"
            raise ValueError(f"{name} is {text}; it must be {least} {MOST[name]:g}")
        found[name] = value
    return Allowance(**found)
