"""Notifications of web addresses about alarms. Alarm evaluation never waits for them."""

import asyncio
import logging
import re
import tomllib
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.base.errors import Conflict, RetryableError, TerminalError
from hostelry.base.files import Stamp, get_stamp
from hostelry.domain.alarm import AlarmHistoryItem, AlarmRule, AlarmState, MetricAlarm
from hostelry.domain.metric import Metric, MetricQuery, MetricStat
from hostelry.domain.scope import Scope
from hostelry.metrics.series.statistic import is_simple
from hostelry.scaling.decide.alarm import encode_compact, format_instant
from hostelry.scaling.decide.alarm_events import (
    Alarm,
    TargetKind,
    build_action_item,
    get_target_kind,
)
from hostelry.store.alarm_log import append_history
from hostelry.store.records import Records, State

LOG = logging.getLogger(__name__)
# Notification of an alarm's action: SNS's envelope around CloudWatch's JSON.
#
# Source: Amazon SNS Developer Guide, "HTTP/HTTPS notification JSON format", and the messages that
# CloudWatch alarms publish.


MAX_SUBJECT = 100
MESSAGE_IDS = uuid.UUID("6f1c2a52-8c55-4f0f-9f0d-5d6d5f2a7a11")


def build_notification(alarm: Alarm, action: str, now: float) -> tuple[Mapping[str, str], bytes]:
    """Headers and body of the POST that notifies `action` of the alarm's present state.

    A resent notification of a state has the same MessageId.
    """
    message_id = build_message_id(alarm, action)
    body = {
        "Type": "Notification",
        "MessageId": message_id,
        "TopicArn": action,
        "Subject": build_subject(alarm),
        "Message": encode_compact(build_message(alarm)),
        "Timestamp": format_instant(now).replace("+0000", "Z"),
        "SignatureVersion": "1",
        "Signature": "",
        "SigningCertURL": "",
        "UnsubscribeURL": "",
    }
    headers = {
        "Content-Type": "text/plain; charset=UTF-8",
        "x-amz-sns-message-type": "Notification",
        "x-amz-sns-message-id": message_id,
        "x-amz-sns-topic-arn": action.encode("ascii", "replace").decode(),
    }
    return headers, encode_compact(body).encode()


def build_message_id(alarm: Alarm, action: str) -> str:
    """The id of the notification of the alarm's present state."""
    status = alarm.status
    identity = f"{alarm.arn} {status.state.value} {status.transitioned_at!r} {action}"
    return str(uuid.uuid5(MESSAGE_IDS, identity))


def build_subject(alarm: Alarm) -> str:
    """One line of at most 100 characters."""
    text = f'{alarm.status.state.value}: "{alarm.name}" in {alarm.scope.region}'
    return text if len(text) <= MAX_SUBJECT else text[: MAX_SUBJECT - 3] + "..."


def build_message(alarm: Alarm) -> Mapping[str, Any]:
    """CloudWatch's JSON of an alarm that changed its state."""
    status, actions = alarm.status, alarm.actions
    before = status.previous or AlarmState.INSUFFICIENT_DATA
    common = {
        "AlarmName": alarm.name,
        "AlarmDescription": alarm.given.get("AlarmDescription"),
        "AWSAccountId": alarm.scope.account,
        "AlarmConfigurationUpdatedTimestamp": format_instant(alarm.configured_at),
        "NewStateValue": status.state.value,
        "NewStateReason": status.reason,
        "StateChangeTime": format_instant(status.transitioned_at),
        "Region": alarm.scope.region,
        "AlarmArn": alarm.arn,
        "OldStateValue": before.value,
        "OKActions": actions.ok,
        "AlarmActions": actions.alarm,
        "InsufficientDataActions": actions.insufficient_data,
    }
    if isinstance(alarm, MetricAlarm):
        return common | {"Trigger": build_trigger(alarm.rule, alarm.given)}
    return common | {"AlarmRule": alarm.expression}


def build_trigger(rule: AlarmRule, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Trigger member: the rule of a metric alarm."""
    common = {
        "Period": rule.period_s,
        "EvaluationPeriods": rule.evaluation_periods,
        "DatapointsToAlarm": rule.datapoints_to_alarm,
        "ComparisonOperator": rule.comparison.value,
        "Threshold": rule.threshold,
        "TreatMissingData": rule.missing.value,
        "EvaluateLowSampleCountPercentile": given.get("EvaluateLowSampleCountPercentile") or "",
    }
    if rule.stat is None:
        return common | {"Metrics": [build_query(it) for it in rule.queries]}
    stat = rule.stat
    if is_simple(stat.statistic):
        kind = {"StatisticType": "Statistic", "Statistic": stat.statistic.upper()}
    else:
        kind = {"StatisticType": "ExtendedStatistic", "ExtendedStatistic": stat.statistic}
    return {**build_metric(stat.metric), **kind, "Unit": stat.unit, **common}


def build_metric(metric: Metric) -> Mapping[str, Any]:
    """A metric's identity."""
    return {
        "MetricName": metric.name,
        "Namespace": metric.namespace,
        "Dimensions": [{"value": value, "name": name} for name, value in metric.dimensions],
    }


def build_query(query: MetricQuery) -> Mapping[str, Any]:
    """One query of an expression."""
    members = {
        "Id": query.id,
        "Label": query.label,
        "Expression": query.expression,
        "ReturnData": query.return_data,
    }
    return members if query.stat is None else members | {"MetricStat": build_stat(query.stat)}


def build_stat(stat: MetricStat) -> Mapping[str, Any]:
    """One statistic of one metric."""
    return {
        "Metric": build_metric(stat.metric),
        "Period": stat.period_s,
        "Stat": stat.statistic,
    }


DEFAULT_PORTS = {"http": 80, "https": 443}
DEFAULT_FOLDER = "topics"
FOLDER = re.compile(r"[A-Za-z0-9_-]{1,100}")
TAKEN_FOLDERS = frozenset({"client", "instances", "logs", "metrics", "objects", "run"})

Origin = tuple[str, str, int]  # scheme, host, port


class AddressError(Exception):
    """No address can be notified. The message is for the alarm's history."""


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Content of actions.toml. `allowed` None allows every address.

        [topics]
        alerts = "http://127.0.0.1:9000/alerts"
        "arn:aws:sns:us-west-2:123456789012:pages" = ["https://a.example/", "https://b.example/"]

        [webhooks]
        allow = ["https://hooks.example", "http://127.0.0.1:9000"]
        confirmed = ["https://hooks.example"]

        [files]
        folder = "topics"

    A topic is named by its ARN, or by its last part for every account and region. Without `allow`,
    an alarm or a subscription may name any address. A subscription of an origin of `confirmed`
    needs no confirmation. `folder`, in the home, has the files that subscribe to topics.
    """

    topics: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)
    allowed: frozenset[Origin] | None = None
    confirmed: frozenset[Origin] = frozenset()
    folder: str = DEFAULT_FOLDER

    @classmethod
    def load(cls, path: Path) -> "Addresses":
        """Read a file, empty if it does not exist. Raises TerminalError if it is invalid."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError) as error:
            raise TerminalError(f"{path} cannot be read: {error}") from error
        try:
            return cls(
                topics=_parse_topics(content),
                allowed=_parse_origins(content, "allow"),
                confirmed=_parse_origins(content, "confirmed") or frozenset(),
                folder=_parse_folder(content),
            )
        except ValueError as error:
            raise TerminalError(f"{path}: {error}") from error

    def of(self, action: str) -> Sequence[str]:
        """The addresses behind a topic or address. Raises AddressError without one."""
        if get_target_kind(action) is TargetKind.ADDRESS:
            reason = self.refusal(action)
            if reason is not None:
                raise AddressError(reason)
            return (action,)
        found = self.topics.get(action) or self.topics.get(action.rpartition(":")[2])
        if not found:
            raise AddressError("the topic has no address under [topics] of actions.toml")
        return found

    def refusal(self, address: str) -> str | None:
        """Why a web address must not be posted to. None if it may."""
        if self.allowed is None or _parse_origin(address) in self.allowed:
            return None
        return "actions.toml does not allow this address under [webhooks]"

    def is_confirmed(self, address: str) -> bool:
        """Whether subscriptions of the address need no confirmation."""
        return _parse_origin(address) in self.confirmed


class AddressFile:
    """The addresses of one actions.toml, read again at a use that finds the file changed.

    A file that cannot be read is logged once per change. Until it is mended the last good content
    holds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._addresses = Addresses()
        self._seen: Stamp | None = None

    def of(self, action: str) -> Sequence[str]:
        """As `Addresses.of`, as the file is now."""
        return self.present().of(action)

    def present(self) -> Addresses:
        """The addresses, as the file is now."""
        seen = get_stamp(self._path)
        if seen != self._seen:
            self._seen = seen
            try:
                self._addresses = Addresses.load(self._path)
            except TerminalError as error:
                LOG.warning("the addresses of alarm actions stay as they were: %s", error)
        return self._addresses


def _parse_topics(content: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    topics: dict[str, Sequence[str]] = {}
    for name, given in _get_table(content, "topics").items():
        addresses = [given] if isinstance(given, str) else given
        if not isinstance(addresses, list) or not addresses:
            raise ValueError(f"[topics] {name} must be an address or a list of addresses")
        for address in addresses:
            if not isinstance(address, str) or get_target_kind(address) is not TargetKind.ADDRESS:
                raise ValueError(f"[topics] {name}: {address!r} is not an http(s) address")
        topics[name] = tuple(addresses)
    return topics


def _parse_origins(content: Mapping[str, Any], name: str) -> frozenset[Origin] | None:
    given = _get_table(content, "webhooks").get(name)
    if given is None:
        return None
    if not isinstance(given, list):
        raise ValueError(f"[webhooks] {name} must be a list of addresses")  # noqa: TRY004 - a file's
    for address in given:
        if not isinstance(address, str) or get_target_kind(address) is not TargetKind.ADDRESS:
            raise ValueError(f"[webhooks] {name}: {address!r} is not an http(s) address")
    return frozenset(_parse_origin(it) for it in given)


def _parse_folder(content: Mapping[str, Any]) -> str:
    given = _get_table(content, "files").get("folder", DEFAULT_FOLDER)
    if not isinstance(given, str) or not FOLDER.fullmatch(given) or given in TAKEN_FOLDERS:
        raise ValueError(f"[files] folder: {given!r} is not a name for a folder of its own")
    return given


def _get_table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be a table")  # noqa: TRY004 - a fault of the file
    return found


def _parse_origin(address: str) -> Origin:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]


# Notifications of web addresses about alarms. Alarm evaluation never waits for them.
#
# At least once: a state is marked as notified afterwards, and the next control process resends it
# after a kill in between.


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


class AlarmActionDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of alarm actions. `addresses_of` raises AddressError without an address.

    `publish(topic, subject, message, message_id)` is called in a thread, and returns whether the
    topic exists.
    """

    state: State
    clock: Clock
    addresses_of: AddressesOf
    post: Post
    publish: Publish = lambda *_: False


class AlarmNotifier:
    """Notifications under way. Used from one event loop, `is_free_for` from any thread."""

    def __init__(self, deps: AlarmActionDeps) -> None:
        self._deps = deps
        self._under_way: set[Job] = set()
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    def is_free_for(self, alarm: Alarm) -> bool:
        """Return whether this state is not being notified yet, and another alarm may be."""
        return build_job(alarm) not in self._under_way and len(self._under_way) < MAX_UNDER_WAY

    async def notify(self, alarm: Alarm) -> None:
        """Post to every address of the state's actions, then mark the state as acted on."""
        job = build_job(alarm)
        if job in self._under_way:
            return
        self._under_way.add(job)
        try:
            actions = alarm.actions.on(alarm.status.state)
            web = [it for it in actions if get_target_kind(it) in WEB]
            items = await asyncio.gather(*(self._item(alarm, it) for it in web))
            await asyncio.to_thread(self._mark, alarm, items)
        except RetryableError as error:
            LOG.info("alarm %s: its actions are retried: %s", alarm.name, error)
        finally:
            self._under_way.discard(job)

    async def _item(self, alarm: Alarm, action: str) -> AlarmHistoryItem:
        is_published = await self._publish(alarm, action)
        try:
            addresses = self._deps.addresses_of(action)
        except AddressError as error:
            problem = None if is_published else str(error)
            return build_action_item(alarm, action, problem, self._deps.clock.now())
        outcomes = [await self._post(alarm, action, it) for it in addresses]
        problems = [it for it in outcomes if it is not None]
        if problems:
            LOG.warning("alarm %s: action %s failed: %s", alarm.name, action, problems[0])
        problem = "; ".join(problems) or None
        return build_action_item(alarm, action, problem, self._deps.clock.now())

    async def _publish(self, alarm: Alarm, action: str) -> bool:
        """Whether the action is an SNS topic that exists: then it has the message."""
        if get_target_kind(action) is not TargetKind.TOPIC:
            return False
        message_id = build_message_id(alarm, action)
        text = encode_compact(build_message(alarm))
        return await asyncio.to_thread(
            self._deps.publish, action, build_subject(alarm), text, message_id
        )

    async def _post(self, alarm: Alarm, action: str, address: str) -> str | None:
        """None once the address accepted it, else the problem."""
        headers, body = build_notification(alarm, action, self._deps.clock.now())
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
            if found is None or build_job(found.value) != build_job(alarm):
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


def build_job(alarm: Alarm) -> Job:
    """An alarm and the state that it entered: what one notification is about."""
    return alarm.scope, alarm.name, alarm.status.state, alarm.status.transitioned_at


class WebPoster:
    """HTTP client for web addresses, used from one event loop."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None

    async def post(self, address: str, headers: Mapping[str, str], body: bytes) -> int:
        """Post and return the answer's status. Does not read its body or follow redirects.

        Raises httpx.HTTPError, httpx.InvalidURL, TimeoutError or OSError if no answer comes in
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
