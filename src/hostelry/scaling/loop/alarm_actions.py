"""Notifications of web addresses about alarms; alarm evaluation never waits for them.

At least once: a state is marked as notified afterwards, and the next control process resends it
after a kill in between.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx

from hostelry.base.clock import Clock
from hostelry.base.errors import Conflict, RetryableError
from hostelry.domain.alarm import AlarmHistoryItem, AlarmState, MetricAlarm
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.alarm_events import Alarm, action_done
from hostelry.scaling.decide.alarm_reasons import dense
from hostelry.scaling.decide.alarm_target import TargetKind, target_kind
from hostelry.scaling.loop.alarm_addresses import AddressError
from hostelry.scaling.loop.alarm_message import message, message_id_of, notification, subject
from hostelry.store.alarm_log import append_history
from hostelry.store.records import Records, State

LOG = logging.getLogger(__name__)
DELAYS_S = (1.0, 2.0, 4.0, 8.0)
POST_TIMEOUT_S = 5.0
MAX_AT_ONCE = 32
MAX_UNDER_WAY = 1000  # further alarms wait, recorded as not acted on
MARK_ATTEMPTS = 10
AGAIN_LATER = frozenset({408, 425, 429})
WEB = (TargetKind.TOPIC, TargetKind.ADDRESS)

AddressesOf = Callable[[str], Sequence[str]]
Post = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]
Publish = Callable[[str, str, str, str], bool]
Job = tuple[Scope, str, AlarmState, float]  # an alarm, and the state it entered then


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmActionDeps:
    """Dependencies; `addresses_of` raises AddressError for an action without an address.

    `publish(topic, subject, message, message_id)` is called in a thread; whether the topic exists.
    """

    state: State
    clock: Clock
    addresses_of: AddressesOf
    post: Post
    publish: Publish = lambda *_: False


class AlarmNotifier:
    """Notifications under way; used from one event loop, `is_free_for` from any thread."""

    def __init__(self, deps: AlarmActionDeps) -> None:
        self._deps = deps
        self._under_way: set[Job] = set()
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    def is_free_for(self, alarm: Alarm) -> bool:
        """Return whether this state is not being notified yet, and another alarm may be."""
        return job_of(alarm) not in self._under_way and len(self._under_way) < MAX_UNDER_WAY

    async def notify(self, alarm: Alarm) -> None:
        """Post to every address of the state's actions, then mark the state as acted on."""
        job = job_of(alarm)
        if job in self._under_way:
            return
        self._under_way.add(job)
        try:
            actions = alarm.actions.on(alarm.status.state)
            web = [it for it in actions if target_kind(it) in WEB]
            items = await asyncio.gather(*(self._item(alarm, it) for it in web))
            await asyncio.to_thread(self._mark, alarm, items)
        except RetryableError as error:
            LOG.info("alarm %s: its actions are retried: %s", alarm.name, error)
        finally:
            self._under_way.discard(job)

    async def _item(self, alarm: Alarm, action: str) -> AlarmHistoryItem:
        is_published = await self._published(alarm, action)
        try:
            addresses = self._deps.addresses_of(action)
        except AddressError as error:
            problem = None if is_published else str(error)
            return action_done(alarm, action, problem, self._deps.clock.now())
        outcomes = [await self._post(alarm, action, it) for it in addresses]
        problems = [it for it in outcomes if it is not None]
        if problems:
            LOG.warning("alarm %s: action %s failed: %s", alarm.name, action, problems[0])
        problem = "; ".join(problems) or None
        return action_done(alarm, action, problem, self._deps.clock.now())

    async def _published(self, alarm: Alarm, action: str) -> bool:
        """Whether the action is an SNS topic that exists: then it has the message."""
        if target_kind(action) is not TargetKind.TOPIC:
            return False
        message_id = message_id_of(alarm, action)
        text = dense(message(alarm))
        return await asyncio.to_thread(self._deps.publish, action, subject(alarm), text, message_id)

    async def _post(self, alarm: Alarm, action: str, address: str) -> str | None:
        """None once the address accepted it, else the problem."""
        headers, body = notification(alarm, action, self._deps.clock.now())
        problem = ""
        for delay_s in (0.0, *DELAYS_S):
            if delay_s:
                await self._deps.clock.sleep(delay_s)
            try:
                async with self._slots:
                    code = await self._deps.post(address, headers, body)
            except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
                problem = f"{address}: {type(error).__name__} {error}".strip()
                continue
            if code < 300:
                return None
            problem = f"{address} answered {code}"
            if code < 500 and code not in AGAIN_LATER:
                break
        return problem

    def _mark(self, alarm: Alarm, items: Sequence[AlarmHistoryItem]) -> None:
        state, now = self._deps.state, self._deps.clock.now()
        if items:
            append_history(state, alarm.scope, list(reversed(items)))
        records: Records[Any] = (
            state.metric_alarms if isinstance(alarm, MetricAlarm) else state.composite_alarms
        )
        for _ in range(MARK_ATTEMPTS):
            found = records.get(alarm.scope, alarm.name)
            if found is None or job_of(found.value) != job_of(alarm):
                return
            acted = replace(found.value.status, acted_at=now)
            try:
                records.put(
                    alarm.scope,
                    alarm.name,
                    replace(found.value, status=acted),
                    expect=found.version,
                )
            except Conflict:
                continue
            return


def job_of(alarm: Alarm) -> Job:
    """An alarm and the state that it entered: what one notification is about."""
    return alarm.scope, alarm.name, alarm.status.state, alarm.status.transitioned_at


class WebPoster:
    """HTTP client for web addresses; for one event loop."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None

    async def post(self, address: str, headers: Mapping[str, str], body: bytes) -> int:
        """Return the status of the answer; its body is not read, no redirect followed.

        Raises httpx.HTTPError, httpx.InvalidURL, TimeoutError or OSError when there is none in
        time.
        """
        if self._client is None:
            limits = httpx.Limits(max_keepalive_connections=0)
            self._client = httpx.AsyncClient(trust_env=False, timeout=POST_TIMEOUT_S, limits=limits)
        async with (
            asyncio.timeout(POST_TIMEOUT_S),
            self._client.stream("POST", address, headers=headers, content=body) as answer,
        ):
            return answer.status_code

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None
