"""Turns to start: a copy's process may start when few others of the instance are starting.

Processes that all start at once are all late: three hundred of them on two cores took two minutes
until the first one answered. In turns the first answers within seconds, and the last no later.
Beside other work starts are slow because they wait for a CPU: more of them at once never end.
"""

import asyncio
from collections import deque
from collections.abc import Callable

# A model may load for minutes, mostly from the disk: it does not hold up the others for so long.
MAX_TURN_S = 5.0  # without the time that the process waits for a CPU
MIN_LOOK_S = 0.1
TURNS_PER_CPU = 2
MIN_TURNS = 4


class StartTurns:
    """Turns on a machine of `num_cpus`, given in the order in which they were asked for."""

    def __init__(self, num_cpus: int) -> None:
        self._free = max(MIN_TURNS, TURNS_PER_CPU * num_cpus)
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_free(self) -> bool:
        """Whether the next who asks need not wait."""
        return self._free > 0

    async def take(self, starved_s: Callable[[], float] = lambda: 0.0) -> Callable[[], None]:
        """Wait for a turn; the function that ends it, which is ended after MAX_TURN_S anyway.

        `starved_s` reports for how long the process that has the turn has waited for a CPU.
        """
        loop = asyncio.get_running_loop()
        if self._free > 0:
            self._free -= 1
        else:
            turn = loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on()  # it was given in the same moment
                raise
        is_over, began_at = False, loop.time()

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._pass_on()

        def look() -> None:
            left_s = turn_left_s(loop.time() - began_at, starved_s())
            if left_s <= 0:
                end()
            elif not is_over:
                loop.call_later(max(MIN_LOOK_S, left_s), look)

        loop.call_later(MAX_TURN_S, look)
        return end

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def turn_left_s(held_s: float, starved_s: float) -> float:
    """Seconds left of a turn that is held for `held_s`, `starved_s` of them without a CPU."""
    return MAX_TURN_S - (held_s - starved_s)
