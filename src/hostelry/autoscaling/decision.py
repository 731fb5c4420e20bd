"""What every policy answers: the capacity it wants, and why; or why it wants no other."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hostelry.domain.scaling import NotScaled


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A target's number now: what is wanted, what serves, and its bounds."""

    desired: int
    serving: int
    minimum: int
    maximum: int

    def clamped(self, wanted: int) -> int:
        """`wanted` within the bounds."""
        return max(self.minimum, min(self.maximum, wanted))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAct:
    """The newest act that cooldowns count from: `at` is when it succeeded, in seconds.

    `since_capacity` is the capacity that it began from, `capacity` the one it led to.
    """

    at: float
    since_capacity: int
    capacity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The capacity that a policy wants, which may be the present one.

    `reason` is one sentence with the values that led to it; `signal` has those values by name.
    `not_scaled` says why nothing changes although the policy was triggered.
    """

    desired: int
    reason: str
    signal: Mapping[str, float] = field(default_factory=dict)
    not_scaled: tuple[NotScaled, ...] = ()
