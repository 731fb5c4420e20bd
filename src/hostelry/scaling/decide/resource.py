"""The resource behind a scalable target, as it is recorded."""

from dataclasses import dataclass

from hostelry.domain.copy import Copy
from hostelry.domain.load import LoadKey
from hostelry.domain.scaling import ScalableTarget
from hostelry.scaling.decide.decision import Capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A component's copies, or a variant's instances.

    `is_settled`: in service, nothing under way. `may_grow`: a larger number may be set at once,
    since all that is under way is a change of the number itself. `problem` says why it is not as
    desired. `keys` are the names whose requests it carries: with a base those of its adapters.
    `copies` are all of its copies. `created_at` distinguishes it from a predecessor of its name.
    """

    keys: tuple[LoadKey, ...]
    desired: int
    serving: int
    status: str
    is_settled: bool
    may_grow: bool
    is_ending: bool
    problem: str | None = None
    copies: tuple[Copy, ...] = ()
    created_at: float = 0.0

    def capacity(self, target: ScalableTarget) -> Capacity:
        """The number with the target's bounds."""
        return Capacity(
            desired=self.desired,
            serving=self.serving,
            minimum=target.min_capacity,
            maximum=target.max_capacity,
        )

    def may_become(self, desired: int) -> bool:
        """Return whether another number may be set now.

        A smaller one too where the larger one has no room: waiting would not help.
        """
        if self.is_settled:
            return True
        return self.may_grow and (desired > self.desired or self.problem is not None)
