"""Split of a variant's requests between its old and its new fleet, evenly and without randomness.

Each request has a position in [0, 1), one golden ratio after the one before; positions below the
share are the new fleet's. Such positions fill the interval evenly: after any number of requests the
count is right within a few, and so it is for every second or third request alone, so that a client
whose requests alternate has both kinds on both fleets.
"""

from hostelry.routing.even_draws import GOLDEN


def takes_new(position: float, share: float) -> bool:
    """Whether the request at `position` is one of the new fleet's `share`, from 0 to 1."""
    return position < share


def next_position(position: float) -> float:
    """The position of the following request."""
    return (position + GOLDEN) % 1.0
