"""EventBridge and its Scheduler in control: receive events, follow schedules, perform calls."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Sequence

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.api.context import CallContext
from hostelry.api.iam.aws_policies import aws_policies
from hostelry.api.operations import perform
from hostelry.audit.caller import name_service
from hostelry.aws.constraints import check_params
from hostelry.aws.models import operation_model
from hostelry.aws.sigv4 import Identity
from hostelry.aws.temporary_keys import Session
from hostelry.aws.tree import JSON_READERS, read_tree
from hostelry.base.clock import Clock
from hostelry.base.errors import RetryableError, ServiceError
from hostelry.base.ids import new_request_id
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse, refuse_invalid
from hostelry.control.call_recorder import CallRecorder, NotedCall, explain_failure
from hostelry.control.data import ControlData
from hostelry.domain.event_rule import EventCall
from hostelry.domain.event_schedule import EventSchedule
from hostelry.domain.messaging import AttributeValue
from hostelry.domain.metric import Metric, Sample
from hostelry.domain.object_event import ObjectEvent, TargetCheck
from hostelry.domain.role import parse_role_name
from hostelry.domain.scope import Scope
from hostelry.events.call_rows import CallRows, TooManyCallsError
from hostelry.events.calls import build_object_calls
from hostelry.events.runner import CallDeps, CallRunner
from hostelry.messaging.failed_delivery import parse_arn, queue_at
from hostelry.messaging.queue_messages import NewMessage
from hostelry.messaging.services import Messaging
from hostelry.metrics.protocol import MetricWriter
from hostelry.principals.records import find_caller
from hostelry.schedules.runner import ScheduleDeps, ScheduleRunner
from hostelry.schedules.targets import TargetCall
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
SCHEDULER = "AWS/Scheduler"
ContextOf = Callable[[Scope], CallContext]


def build_schedule_runner(
    state: State,
    clock: Clock,
    metrics: MetricWriter,
    messaging: Messaging,
    context_of: ContextOf,
) -> ScheduleRunner:
    """Build the runner over the schedules of `state`. Control performs its calls."""

    def invoke(schedule: EventSchedule, call: TargetCall) -> None:
        role_arn = (schedule.given.get("Target") or {}).get("RoleArn")
        context = act_in_role(context_of(schedule.scope), role_arn, "scheduler")
        perform_call(context, call, "scheduler.amazonaws.com")

    def bury(schedule: EventSchedule, error: ServiceError) -> bool:
        return send_dead_letter(state, messaging, schedule, error, clock.now())

    def count(schedule: EventSchedule, name: str) -> None:
        metric = Metric(
            namespace=SCHEDULER, name=name, dimensions=(("ScheduleGroup", schedule.group),)
        )
        sample = Sample(metric=metric, at=clock.now(), values=(1.0,), counts=(1.0,), unit="Count")
        metrics.emit(schedule.scope, [sample])

    return ScheduleRunner(
        ScheduleDeps(
            state=state,
            clock=clock,
            gateway_url=messaging.gateway_url,
            invoke=invoke,
            bury=bury,
            count=count,
        )
    )


def perform_call(context: CallContext, call: TargetCall, invoked_by: str) -> None:
    """Check `call` against the service's model like a client's call, and perform it.

    The audit trail gets a record of it, as a call of the service `invoked_by`.
    """
    recorder = CallRecorder(context.trail)
    noted = NotedCall(
        scope=context.scope,
        at=context.now,
        request_id=new_request_id(),
        user_agent=invoked_by,
        service=call.service,
        operation=call.operation,
        params=call.params,
        caller=name_service(context.scope.account, invoked_by),
    )
    recorder.check(noted)
    failure = None
    try:
        shape = operation_model(call.service, call.operation).input_shape
        params = read_tree(shape, dict(call.params), "", JSON_READERS)
        check_params(shape, params)
        noted.result = perform(context, call.service, call.operation, params)
    except Exception as error:
        failure = explain_failure(error, noted)
        raise
    finally:
        recorder.record(noted, failure)


def act_in_role(context: CallContext, role_arn: str | None, session_name: str) -> CallContext:
    """The context of a call that a service makes in a role. Without a role it acts for itself.

    Raises ServiceError 403 if the role was deleted.
    """
    if not role_arn:
        return context
    account = context.scope.account
    stored = context.state.roles.get(context.scope.account_wide, parse_role_name(role_arn).lower())
    session = Session(
        access_key_id="",
        account_id=account,
        expires_at=0,
        role_name=parse_role_name(role_arn),
        role_id="" if stored is None else stored.value.id,
        session_name=session_name,
    )
    identity = Identity(
        access_key_id="",
        account_id=account,
        region=context.scope.region,
        service="",
        session=session,
    )
    caller = find_caller(context.state, aws_policies(), account, identity)
    return replace(context, caller=caller, session=session)


def send_dead_letter(
    state: State, messaging: Messaging, schedule: EventSchedule, error: ServiceError, now: float
) -> bool:
    """Send the input of an abandoned event to its dead-letter queue. False without a queue."""
    arn = schedule.target.dead_letter_arn
    if arn is None:
        return False
    if queue_at(state, arn, schedule.scope.account) is None:
        LOG.warning("the dead-letter queue %s of %s is gone", arn, schedule.arn)
        return False
    attributes = {
        "ERROR_CODE": error.code,
        "ERROR_MESSAGE": error.message[:1024],
        "SCHEDULE_ARN": schedule.arn,
        "TARGET_ARN": schedule.target.arn,
    }
    letter = NewMessage(
        id=str(uuid.uuid4()),
        queue_arn=arn,
        body=schedule.target.input or "{}",
        sent_at=now,
        visible_at=now,
        sender=schedule.scope.account,
        attributes={
            name: AttributeValue(kind="String", value=value) for name, value in attributes.items()
        },
    )
    messaging.queues.send([letter])
    messaging.arrivals.announce(arn)
    return True


EVENTS = "AWS/Events"
SWEEP_S = 600.0


class EventServer:
    """Events of one control process: `run` makes calls until cancelled."""

    def __init__(
        self, data: ControlData, clock: Clock, messaging: Messaging, context_of: ContextOf
    ) -> None:
        state = self._state = data.state
        self._clock = clock
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.rows = CallRows(data.messages, self._wake)
        self.runner = build_call_runner(
            self.rows, state, clock, data.metrics, messaging, context_of
        )

    def routes(self) -> tuple[Route, ...]:
        """Control's routes for the S3 port."""
        return (
            Route("/internal/object-events", self.take, methods=["POST"]),
            Route("/internal/object-events/targets", self.check, methods=["POST"]),
        )

    async def take(self, request: Request) -> Response:
        """Store events and answer 204, also if they were stored before.

        400 if the body is invalid, 503 if the store is away or has too many calls.
        """
        with refuse_invalid("events"):
            events = decode(await request.body(), list[ObjectEvent])
        try:
            await asyncio.to_thread(self._take, events)
        except (RetryableError, TooManyCallsError) as error:
            return Response(f"try again: {error}", 503)
        return Response(status_code=204)

    async def check(self, request: Request) -> Response:
        """List the missing topics and queues. If none is missing, each gets a test message.

        400 if the body is invalid.
        """
        with refuse_invalid("check of targets"):
            asked = decode(await request.body(), TargetCheck)
        missing = await asyncio.to_thread(self._try_targets, asked)
        return JsonResponse({"missing": missing})

    async def run(self) -> None:
        """Make calls when they are due, until cancelled."""
        self._loop = asyncio.get_running_loop()
        swept_at = 0.0
        while True:
            self._woken.clear()
            await asyncio.to_thread(self.runner.run_due)
            now = self._clock.now()
            if now - swept_at >= SWEEP_S:
                swept_at = now
                await asyncio.to_thread(self.rows.sweep, now)
            wait_s = max(0.0, self.runner.next_at() - now)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    def _take(self, events: Sequence[ObjectEvent]) -> None:
        rules = [it.value for it in self._state.event_rules.list()]
        for event in events:
            now = self._clock.now()
            self.rows.accept(event.id, build_object_calls(event, rules, now), now)

    def _try_targets(self, asked: TargetCheck) -> list[str]:
        missing = [arn for arn in asked.arns if not has_target(self._state, asked.scope, arn)]
        now, trial = self._clock.now(), str(uuid.uuid4())
        calls = [
            EventCall(
                id=f"{trial}/{arn}",
                scope=asked.scope,
                source="s3:TestEvent",
                target_arn=arn,
                text=asked.message,
                event_at=now,
            )
            for arn in dict.fromkeys(asked.arns)
        ]
        if not missing:
            self.rows.accept(trial, calls, now)
        return missing

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._woken.set)


def build_call_runner(
    rows: CallRows,
    state: State,
    clock: Clock,
    metrics: MetricWriter,
    messaging: Messaging,
    context_of: ContextOf,
) -> CallRunner:
    """Build the runner over the calls of `rows`. Control performs them like a client's calls."""

    def invoke(call: EventCall, target: TargetCall) -> None:
        # If an object's event starts a job, the job's chain is one longer than the object's.
        context = replace(context_of(call.scope), chain_length=call.chain_length + 1)
        context = act_in_role(context, call.role_arn, "events")
        perform_call(context, target, "events.amazonaws.com")

    def count(call: EventCall, name: str) -> None:
        metric = Metric(namespace=EVENTS, name=name, dimensions=(("RuleName", call.source),))
        sample = Sample(metric=metric, at=clock.now(), values=(1.0,), counts=(1.0,), unit="Count")
        metrics.emit(call.scope, [sample])

    return CallRunner(
        CallDeps(
            rows=rows,
            clock=clock,
            gateway_url=messaging.gateway_url,
            invoke=invoke,
            build_letters=lambda call, error: build_dead_letters(state, call, error, clock.now()),
            announce=messaging.arrivals.announce,
            count=count,
        )
    )


def build_dead_letters(
    state: State, call: EventCall, error: ServiceError, now: float
) -> Sequence[NewMessage]:
    """The input of an abandoned call as a message for its dead-letter queue, if it has one."""
    arn = call.dead_letter_arn
    if arn is None:
        return ()
    if queue_at(state, arn, call.scope.account) is None:
        LOG.warning("the dead-letter queue %s of %s is gone", arn, call.source)
        return ()
    attributes = {
        "ERROR_CODE": error.code,
        "ERROR_MESSAGE": error.message[:1024],
        "RULE_NAME": call.source,
        "TARGET_ARN": call.target_arn,
    }
    return (
        NewMessage(
            id=str(uuid.uuid4()),
            queue_arn=arn,
            body=call.text,
            sent_at=now,
            visible_at=now,
            sender=call.scope.account,
            attributes={
                name: AttributeValue(kind="String", value=value)
                for name, value in attributes.items()
            },
        ),
    )


def has_target(state: State, scope: Scope, arn: str) -> bool:
    """Whether an ARN names an existing topic or queue of `scope`."""
    if arn.count(":") != 5 or not arn.startswith(("arn:aws:sqs:", "arn:aws:sns:")):
        return False
    owner, name = parse_arn(arn)
    if owner != scope:
        return False
    records = state.queues if arn.startswith("arn:aws:sqs:") else state.topics
    return records.get(scope, name) is not None
