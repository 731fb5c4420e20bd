"""The control of this host for its other processes, and another one while that cannot be used.

Requests go to the host's own control, which forwards them if it does not lead. Once one fails or
takes long, that control is asked who leads. If it does not say, the controls of `controls.json` are
asked.

answers to GET /internal/leader                      requests go to
---------------------------------------------------  ---------------------------------------------
own control names a leader, of no older epoch        own control. Nothing more is asked
it does not, and another one names another leader    that leader, until own control names one
it does not, and the leader named is own control     own control: no other can do better
none names a leader, or only of an older epoch       own control
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from hostelry.base.clock import Clock, SystemClock, monotonic_s
from hostelry.cluster.known_controls import list_known_controls, may_be_asked
from hostelry.cluster.leader_view import (
    ASK_TIMEOUTS,
    ControlAnswer,
    LeaderAwayError,
    LeaderCalls,
    LeaderView,
    Waiters,
    ask_leader,
    get_next_view,
)
from hostelry.dataplane.control_calls import is_read
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.http1.reply import ControlAwayError, DeadlineError, Reply
from hostelry.http1.upstream import Timeouts, Upstream

LOG = logging.getLogger(__name__)
WAIT_S = 3.0  # for another control, from a call's first failure on
SLOW_S = 0.5  # without an answer own control is asked, and again after twice as long each time
PATIENT = Timeouts(total_s=1.0, connect_s=1.0)  # of own control: it may be busy
LOOK_S = 0.3  # from one look to the next while own control cannot be used
READ_S = 1.0  # from one reading of the file to the next


def choose_control(
    own: tuple[str, str], before: LeaderView, asked: Sequence[ControlAnswer]
) -> LeaderView:
    """Where requests go after these answers. See the module's table. Its leader is never None.

    `own` is own control's address on this host, and the address by which others know it.
    """
    own_url, own_address = own
    confirmed = [it.answer for it in asked if it.address == own_url and names_leader(it, before)]
    if confirmed and confirmed[0] is not None:
        return LeaderView(leader=own_url, epoch=confirmed[0].epoch, cause="")
    found = get_next_view(before, [it for it in asked if it.address != own_url])
    elsewhere = found.leader not in (None, own_address) and may_be_asked(found.leader or "")
    failures = "; ".join(f"{it.address}: {it.failure}" for it in asked if it.failure)
    return LeaderView(
        leader=found.leader if elsewhere else own_url, epoch=found.epoch, cause=failures
    )


def names_leader(asked: ControlAnswer, before: LeaderView) -> bool:
    """Whether that control knows a leader, of no older epoch than is known."""
    answer = asked.answer
    return answer is not None and answer.leader is not None and answer.epoch >= before.epoch


def is_over(own_url: str, before: LeaderView, found: LeaderView) -> bool:
    """Whether requests under way at the leader of `before` are to be given up.

    Not where own control can be used again and the other one leads on.
    """
    if before.leader == found.leader:
        return False
    return found.leader != own_url or found.epoch != before.epoch


class OwnControl:
    """The control that this host's processes use. A `LeaderSource` that looks once it has to.

    Args:
        own: own control's address on this host, and the address by which others know it.
        others: addresses of the other controls, as they were last known.
        ask: the answer of the control at an address to who leads.
        clock: waiting.
    """

    def __init__(
        self,
        own: tuple[str, str],
        others: Callable[[], Sequence[str]],
        ask: Callable[[str, Timeouts], Awaitable[ControlAnswer]],
        clock: Clock,
    ) -> None:
        self._own = own
        self._others = others
        self._ask = ask
        self._clock = clock
        self._view = LeaderView(leader=own[0], cause="")
        self._waiters = Waiters()
        self._is_trusted = True  # own control named a leader when it was asked last
        self._looking: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Own control's address on this host."""
        return self._own[0]

    @property
    def has_others(self) -> bool:
        """Whether other controls are known."""
        return bool(self._others())

    @property
    def view(self) -> LeaderView:
        """Where requests go now."""
        return self._view

    def get_change(self) -> "asyncio.Future[None]":
        """A future, done once requests under way must be given up. The caller may cancel it."""
        return self._waiters.add()

    def suspect(self, leader: str) -> None:
        """The control at that address failed a request, or does not answer it: look."""
        if leader == self._view.leader and (self._looking is None or self._looking.done()):
            self._looking = asyncio.get_running_loop().create_task(self._look_until_confirmed())

    async def look(self) -> bool:
        """Ask own control, and the others if it names no leader. Return whether it names one."""
        before, own_url = self._view, self._own[0]
        asked: list[ControlAnswer] = []
        if self._is_trusted:
            asked = [await self._ask(own_url, PATIENT)]
            self._is_trusted = names_leader(asked[0], before)
        if not self._is_trusted:
            addresses = [*([] if asked else [own_url]), *self._others()]
            asked += await asyncio.gather(*[self._ask(it, ASK_TIMEOUTS) for it in addresses])
            self._is_trusted = names_leader(asked[0], before)
        self._view = found = choose_control(self._own, before, asked)
        if found.leader != before.leader:
            why = f" ({found.cause})" if found.cause else ""
            LOG.warning("control calls go to %s%s", found.leader, why)
        if is_over(own_url, before, found):
            self._waiters.wake()
        return self._is_trusted

    async def _look_until_confirmed(self) -> None:
        while not await self.look():
            await self._clock.sleep(LOOK_S)


class ControlCall:
    """A request of one of this host's processes to control."""

    def __init__(
        self,
        pool: Upstream,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None,
    ) -> None:
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.only_reads = is_read(*parts)
        self._pool = pool
        self._parts = parts
        self._timeouts = timeouts
        self._whole_below_bytes = whole_below_bytes
        self._ends_at = monotonic_s() + timeouts.total_s

    @property
    def is_whole(self) -> bool:
        """Whether there is time to send it."""
        return monotonic_s() < self._ends_at

    async def send(self, address: str) -> Reply:
        """The head of the reply of `address`, within the call's time. Raises UpstreamError."""
        left_s = self._ends_at - monotonic_s()
        if left_s <= 0:
            raise DeadlineError("The time limit passed before the call was sent.")
        timeouts = Timeouts(
            total_s=left_s,
            connect_s=min(self._timeouts.connect_s, left_s),
            first_byte_s=self._timeouts.first_byte_s,
        )
        return await self._pool.send(address, self._parts, timeouts, self._whole_below_bytes)


class ControlUpstream:
    """`pool`, with requests to own control redirected by `control`. Implements `Upstream`.

    Failed requests are sent again as the table of `leader_view` says. Raises ControlAwayError then.
    """

    def __init__(self, pool: Upstream, control: OwnControl) -> None:
        self._pool = pool
        self._control = control
        self._calls = LeaderCalls(control, WAIT_S)

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        """One request's reply with its head received. The caller closes it."""
        if address != self._control.url or not self._control.has_others:
            return await self._pool.send(address, parts, timeouts, whole_below_bytes)
        call = ControlCall(self._pool, parts, timeouts, whole_below_bytes)
        slow = SlowCall(self._control)
        try:
            _, reply = await self._calls.send_to_leader(call)
        except LeaderAwayError as error:
            raise ControlAwayError(str(error)) from None
        finally:
            slow.end()
        if reply.status == 503:
            self._control.suspect(self._control.url)
        return reply


class SlowCall:
    """Has `control` look again and again while a call has no answer, until `end`."""

    def __init__(self, control: OwnControl) -> None:
        self._control = control
        self._after_s = SLOW_S
        self._timer = asyncio.get_running_loop().call_later(SLOW_S, self._look)

    def end(self) -> None:
        """The call has an answer, or none will come."""
        self._timer.cancel()

    def _look(self) -> None:
        self._control.suspect(self._control.view.leader or "")
        self._after_s *= 2
        self._timer = asyncio.get_running_loop().call_later(self._after_s, self._look)


class OtherControls:
    """The other controls of the file in `home`, read once a second at the most, when asked for."""

    def __init__(self, home: Home, config: UpConfig, now_s: Callable[[], float]) -> None:
        self._home = home
        self._config = config
        self._now_s = now_s
        self._read_at_s: float | None = None
        self._found: tuple[str, ...] = ()

    def __call__(self) -> tuple[str, ...]:
        """Their addresses."""
        now_s = self._now_s()
        if self._read_at_s is None or now_s - self._read_at_s >= READ_S:
            self._read_at_s = now_s
            self._found = list_known_controls(self._home, self._config)
        return self._found


def build_own_control(
    home: Home, config: UpConfig, credentials: Credentials, pool: Upstream
) -> OwnControl:
    """This host's control, as one of its other processes uses it. `pool` asks who leads."""

    async def ask(address: str, timeouts: Timeouts) -> ControlAnswer:
        return await ask_leader(pool, address, credentials.internal_key, timeouts)

    own = (config.control_url, config.control_address)
    return OwnControl(own, OtherControls(home, config, monotonic_s), ask, SystemClock())
