"""The seam of the scaling loop: requests for another capacity."""

from typing import Protocol

from hostelry.domain.load import Wake
from hostelry.scaling.decide.decision import Proposal, Trigger


class Scaler(Protocol):
    """The only component that changes capacity by itself: decides, records the activity, acts.

    Thread-safe; requests for one target are handled one after the other. No method raises for a
    user's mistake: an activity records what could not be done.
    """

    def trigger(self, trigger: Trigger) -> None:
        """Let the triggered policy decide, together with the target's other policies, and act."""
        ...

    def propose(self, proposal: Proposal) -> None:
        """Raise the target's capacity, never below what AWS's policies ask for."""
        ...

    def wake(self, wake: Wake) -> None:
        """Start the first copies of a name that has none, at once."""
        ...
