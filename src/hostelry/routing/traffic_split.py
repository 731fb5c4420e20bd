"""Split of a variant's requests between its old and its new fleet, evenly and without randomness.

Each request has a position in [0, 1), an even draw after the one before (`even_draws`); positions
below the share are the new fleet's. So after any number of requests the count is right within a
few, and so it is for every second or third request alone: a client whose requests alternate has
both kinds on both fleets.
"""


def takes_new(position: float, share: float) -> bool:
    """Whether the request at `position` is one of the new fleet's `share`, from 0 to 1."""
    return position < share
