"""A gateway worker's end of the line to the mirror process (`MirrorPort`).

a request whose turn it is                                 result
---------------------------------------------------------  -------------------------------------
the mirror process takes no connection, for example        dropped, and counted
during a restart
the limit of unsent requests or bytes is reached: the      dropped, and counted
mirror process hangs, or is too slow
the line breaks before the request is sent                 dropped, and counted
any other                                                  sent with all of the same 100 ms

A request costs the worker an entry in a list, and its share of a system call that never waits.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from hostelry.dataplane.route_table import Shadow
from hostelry.domain.load import LoadKey
from hostelry.gateway.mirroring.messages import (
    Message,
    MirroredInvocation,
    ProductionAnswer,
    frame_start,
)
from hostelry.gateway.mirroring.port import ShadowTurns

LOG = logging.getLogger(__name__)
MAX_BATCH = 64  # frames of one system call
EARLY_FROM = 32  # when this number of frames waits, they are sent after EARLY_S
EARLY_S = 0.002


class HandoverLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one worker on unsent messages, and on answers that are compared.

    The messages of `batch_s` are sent together, and many messages earlier. The answers to
    `pairs_per_s` requests are compared, and to `pairs_at_once` after a pause. An answer of more
    than `max_answer_bytes` is not compared.
    """

    batch_s: float = 0.1
    max_unsent: int = 256
    max_unsent_bytes: int = 64 * 1024 * 1024
    retry_s: float = 0.25
    pairs_per_s: float = 20.0
    pairs_at_once: int = 32
    max_answer_bytes: int = 64 * 1024


class HandedOver(NamedTuple):
    """An unsent message. `key` is the shadow of a request, and None for an answer."""

    message: Message
    body: bytes
    key: LoadKey | None


class HandedAnswer:
    """Production's answer of a pair, as it is read (`AnswerTap`)."""

    __slots__ = ("_chunks", "_handover", "_num_bytes", "_pair")

    def __init__(self, handover: "MirrorHandover", pair: int) -> None:
        self._handover = handover
        self._pair = pair
        self._chunks: list[bytes] | None = []
        self._num_bytes = 0

    def add(self, chunk: bytes) -> None:
        """Keep the next part. An answer that becomes too large is not compared."""
        self._num_bytes += len(chunk)
        if self._num_bytes > self._handover.limits.max_answer_bytes:
            self.close()
        elif self._chunks is not None:
            self._chunks.append(chunk)

    def finish(self, answered: Mapping[str, str]) -> None:
        """Hand the whole answer over. Its headers are not compared."""
        if self._chunks is not None:
            self._handover.answered(self._pair, b"".join(self._chunks))
            self._chunks = None

    def close(self) -> None:
        """End the answer. If it is not whole, there is nothing to compare."""
        if self._chunks is not None:
            self._handover.answered(self._pair, None)
            self._chunks = None


class MirrorHandover:
    """Hands requests and answers over to the mirror process.

    Args:
        connect: connects to the mirror process without a wait. Raises OSError if that fails.
        turns: decides which requests each shadow gets.
        dropped: counts a request that a shadow does not get.
        now_s: seconds of a clock that never goes back.
        limits: limits of unsent messages and of compared answers.
    """

    def __init__(
        self,
        connect: Callable[[], socket.socket],
        turns: ShadowTurns,
        dropped: Callable[[LoadKey], None],
        now_s: Callable[[], float],
        limits: HandoverLimits | None = None,
    ) -> None:
        self.is_turn = turns.is_turn
        self.limits = limits or HandoverLimits()
        self._connect = connect
        self._dropped = dropped
        self._now_s = now_s
        self._line: socket.socket | None = None
        self._is_connected = True  # as logged last
        self._retry_at_s = float("-inf")
        self._waiting: deque[HandedOver] = deque()
        self._batch: list[HandedOver] = []  # being sent
        self._parts: list[memoryview] = []  # the unsent bytes of the batch
        self._num_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_full = False  # the socket has no room, and the rest waits for it
        self._last_pair = 0
        self._pairs_left = float(self.limits.pairs_at_once)
        self._pairs_at_s = now_s()

    def offer(
        self, shadow: Shadow, request: MirroredInvocation, body: bytes
    ) -> HandedAnswer | None:
        """Hand a request over soon. The result takes production's answer if it is compared."""
        if not self._has_room(body):
            self._dropped(shadow.key)
            return None
        request.offered_at_s = now_s = self._now_s()
        answer = None
        if self._is_compared(now_s):
            self._last_pair += 1
            request.pair = self._last_pair
            answer = HandedAnswer(self, self._last_pair)
        self._hand_over(HandedOver(request, body, shadow.key))
        return answer

    def answered(self, pair: int, body: bytes | None) -> None:
        """Hand production's answer of a pair over. None means that the pair is given up."""
        if self._has_room(body or b""):
            answer = ProductionAnswer(pair=pair, is_whole=body is not None)
            self._hand_over(HandedOver(answer, body or b"", None))

    @property
    def num_in_flight(self) -> int:
        """Number of unsent messages."""
        return len(self._waiting) + len(self._batch)

    async def close(self) -> None:
        """Send as much as the socket takes at once, drop the rest, and end the line."""
        if self._timer is not None:
            self._timer.cancel()
        if self.num_in_flight:
            self._send()
        self._drop_all()

    def _has_room(self, body: bytes) -> bool:
        limits = self.limits
        has_place = len(self._waiting) + len(self._batch) < limits.max_unsent
        return has_place and self._num_bytes + len(body) <= limits.max_unsent_bytes

    def _is_compared(self, now_s: float) -> bool:
        """True if the answers to this request are compared."""
        limits = self.limits
        earned = (now_s - self._pairs_at_s) * limits.pairs_per_s
        self._pairs_at_s = now_s
        self._pairs_left = min(self._pairs_left + earned, limits.pairs_at_once)
        if self._pairs_left < 1:
            return False
        self._pairs_left -= 1
        return True

    def _hand_over(self, handed: HandedOver) -> None:
        self._num_bytes += len(handed.body)
        self._waiting.append(handed)
        if self._is_full:
            return
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.limits.batch_s, self._send)
        elif len(self._waiting) == EARLY_FROM:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(EARLY_S, self._send)

    def _send(self) -> None:
        """Send as much as the socket takes. The rest waits for room."""
        self._timer = None
        line = self._get_line()
        if line is None:
            self._drop_all()
            return
        while self._parts or self._waiting:
            if not self._parts:
                self._next_batch()
            try:
                self._forget_sent(line.sendmsg(self._parts))
            except BlockingIOError:
                self._wait_for_room(line)
                return
            except OSError as error:
                self._note(error)
                self._drop_all()
                return
        if self._is_full:
            self._is_full = False
            asyncio.get_running_loop().remove_writer(line)

    def _next_batch(self) -> None:
        num = min(len(self._waiting), MAX_BATCH)
        self._batch = [self._waiting.popleft() for _ in range(num)]
        for message, body, _ in self._batch:
            self._parts.append(memoryview(frame_start(message, body)))
            if body:
                self._parts.append(memoryview(body))

    def _forget_sent(self, num_bytes: int) -> None:
        """Forget bytes that were sent, and the batch after its last byte."""
        num_whole = 0
        for part in self._parts:
            if num_bytes < len(part):
                break
            num_bytes -= len(part)
            num_whole += 1
        del self._parts[:num_whole]
        if self._parts:
            self._parts[0] = self._parts[0][num_bytes:]
        else:
            self._num_bytes -= sum(len(it.body) for it in self._batch)
            self._batch = []

    def _wait_for_room(self, line: socket.socket) -> None:
        if not self._is_full:
            self._is_full = True
            asyncio.get_running_loop().add_writer(line, self._send)

    def _get_line(self) -> socket.socket | None:
        """Get the line, or connect it. None if that fails, or failed a moment ago."""
        if self._line is None and self._now_s() >= self._retry_at_s:
            try:
                self._line = self._connect()
            except OSError as error:
                self._note(error)
            else:
                self._note(None)
        return self._line

    def _drop_all(self) -> None:
        """End the line, and drop the unsent messages."""
        line, self._line = self._line, None
        if line is not None:
            if self._is_full:
                asyncio.get_running_loop().remove_writer(line)
            line.close()
        self._is_full = False
        for handed in (*self._batch, *self._waiting):
            if handed.key is not None:
                self._dropped(handed.key)
        self._batch, self._parts, self._num_bytes = [], [], 0
        self._waiting.clear()

    def _note(self, error: OSError | None) -> None:
        """Log that the mirror process takes requests, or no longer, if that has changed."""
        if error is not None:
            self._retry_at_s = self._now_s() + self.limits.retry_s
        if self._is_connected == (error is None):
            return
        self._is_connected = error is None
        if error is None:
            LOG.info("the mirror process takes requests again")
        else:
            LOG.warning(
                "the mirror process takes no requests (%s): those for shadow variants are dropped",
                error,
            )
