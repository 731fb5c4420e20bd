"""EventBridge Scheduler of control: wired, and the calls that schedules make."""

import logging
import uuid
from collections.abc import Callable

from hostelry.api.context import CallContext
from hostelry.api.operations import perform
from hostelry.aws.constraints import check_params
from hostelry.aws.models import operation_model
from hostelry.aws.tree import JSON_READERS, read_tree
from hostelry.base.clock import Clock
from hostelry.base.errors import ServiceError
from hostelry.domain.event_schedule import EventSchedule
from hostelry.domain.metric import Metric, Sample
from hostelry.domain.queue import AttributeValue
from hostelry.domain.scope import Scope
from hostelry.messaging.failed_delivery import queue_at
from hostelry.messaging.queue_messages import NewMessage
from hostelry.messaging.services import Messaging
from hostelry.metrics.protocol import MetricWriter
from hostelry.schedules.runner import ScheduleDeps, ScheduleRunner
from hostelry.schedules.targets import TargetCall
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
NAMESPACE = "AWS/Scheduler"
ContextOf = Callable[[Scope], CallContext]


def schedule_runner(
    state: State,
    clock: Clock,
    metrics: MetricWriter,
    messaging: Messaging,
    context_of: ContextOf,
) -> ScheduleRunner:
    """The runner over the schedules of `state`; its calls are performed in control."""

    def invoke(schedule: EventSchedule, call: TargetCall) -> None:
        perform_call(context_of(schedule.scope), call)

    def bury(schedule: EventSchedule, error: ServiceError) -> bool:
        return send_dead_letter(state, messaging, schedule, error, clock.now())

    def count(schedule: EventSchedule, name: str) -> None:
        metric = Metric(
            namespace=NAMESPACE, name=name, dimensions=(("ScheduleGroup", schedule.group),)
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


def perform_call(context: CallContext, call: TargetCall) -> None:
    """Perform `call` as a client's: checked against the service's model first."""
    shape = operation_model(call.service, call.operation).input_shape
    params = read_tree(shape, dict(call.params), "", JSON_READERS)
    check_params(shape, params)
    perform(context, call.service, call.operation, params)


def send_dead_letter(
    state: State, messaging: Messaging, schedule: EventSchedule, error: ServiceError, now: float
) -> bool:
    """Send the input of a given-up event to its dead-letter queue; whether it has one."""
    arn = schedule.target.dead_letter_arn
    if arn is None:
        return False
    if queue_at(state, arn) is None:
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
