"""What a request gets for a name without a copy."""

from enum import Enum

from hostelry.domain.at_zero import AtZero, Wakeable


class Course(Enum):
    """What is done with the request."""

    WAIT = "wait"  # copies are wanted, and will come
    WAKE = "wake"  # it waits, and has a copy started
    REFUSE = "refuse"  # none will come unless somebody does something
    TRY_AGAIN = "try again"  # it is answered at once that copies are coming


def course_of(at_zero: AtZero, desired_copies: int, wakeable: Wakeable) -> Course:
    """The course for a request that found no copy.

    Source of what compat does: "Scale an endpoint to zero instances" in the SageMaker developer
    guide, where a request fails until an alarm on its failing has started a copy.
    """
    if at_zero is AtZero.COMPAT:
        return Course.TRY_AGAIN if desired_copies else Course.REFUSE
    if desired_copies:
        return Course.WAIT
    return Course.WAKE if wakeable is Wakeable.YES else Course.REFUSE
