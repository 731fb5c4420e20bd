"""Choice of the requests that are captured. Pure."""

BLOCK = 100


class Sampler:
    """Takes exactly `percent` of each 100 requests, at random places among them.

    Independent draws would take 43 to 57 of a hundred at 50 percent. A fixed pattern would see one
    kind of request only where kinds alternate.
    """

    def __init__(self, percent: int) -> None:
        self._percent = percent
        self._wanted = percent
        self._left = BLOCK

    def takes(self, draw: float) -> bool:
        """Decide if the next request is captured. `draw` is uniform in [0, 1)."""
        is_taken = draw * self._left < self._wanted
        self._left -= 1
        self._wanted -= is_taken
        if not self._left:
            self._wanted, self._left = self._percent, BLOCK
        return is_taken
