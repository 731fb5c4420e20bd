"""The permissions that operations of SNS, SQS, EventBridge and its Scheduler need."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hostelry.api.authorization.row import (
    AskedCall,
    NeedRow,
    Rows,
    Target,
    TargetRule,
    build_need,
)
from hostelry.api.authorization.targets import build_arn_rule, build_name_rule, fill
from hostelry.api.sqs.queue import QUEUE_URL
from hostelry.domain.event_rule import DEFAULT_BUS
from hostelry.domain.event_schedule import DEFAULT_GROUP
from hostelry.permissions.needs.needed import ALL, NeededPermission
from hostelry.permissions.wildcard import Context

_TOPIC = "arn:aws:sns:{region}:{account}:{name}"
_ON_TOPIC = NeedRow(on=(build_arn_rule("TopicArn"),))
_PUBLISH = NeedRow(action="Publish", on=(build_arn_rule("TopicArn|TargetArn"),))
SNS: Rows = {
    "CreateTopic": NeedRow(
        on=(build_name_rule(_TOPIC, "Name"),), creates=True, tags="Tags", tagging="sns:TagResource"
    ),
    "DeleteTopic": _ON_TOPIC,
    "ListTopics": NeedRow(),
    "GetTopicAttributes": _ON_TOPIC,
    "SetTopicAttributes": _ON_TOPIC,
    "Subscribe": NeedRow(
        on=(build_arn_rule("TopicArn"),),
        keys={"sns:Endpoint": "Endpoint", "sns:Protocol": "Protocol"},
    ),
    "ConfirmSubscription": _ON_TOPIC,
    "Unsubscribe": NeedRow(),
    "ListSubscriptions": NeedRow(),
    "ListSubscriptionsByTopic": _ON_TOPIC,
    "GetSubscriptionAttributes": NeedRow(),
    "SetSubscriptionAttributes": NeedRow(),
    "Publish": _PUBLISH,
    "PublishBatch": _PUBLISH,
    "TagResource": NeedRow(on=(build_arn_rule("ResourceArn"),), tags="Tags"),
    "UntagResource": NeedRow(on=(build_arn_rule("ResourceArn"),), tag_keys="TagKeys"),
    "ListTagsForResource": NeedRow(on=(build_arn_rule("ResourceArn"),)),
}


def _find_queue(call: AskedCall) -> Sequence[Target]:
    """The queue of an address, which names its account."""
    found = [QUEUE_URL.fullmatch(it) for it in call.get_values("QueueUrl")]
    place = f"arn:aws:sqs:{call.scope.region}"
    return [Target(f"{place}:{it[1]}:{it[2]}") for it in found if it] or (Target(ALL),)


def _find_named_queue(call: AskedCall) -> Sequence[Target]:
    owner = next(iter(call.get_values("QueueOwnerAWSAccountId")), call.scope.account)
    place = f"arn:aws:sqs:{call.scope.region}:{owner}"
    return [Target(f"{place}:{name}") for name in call.get_values("QueueName")] or (Target(ALL),)


def _on_queue(action: str = "") -> NeedRow:
    """The row of an operation on a queue. A batch needs the action on one message."""
    return NeedRow(action=action, on=(_find_queue,))


SQS: Rows = {
    "CreateQueue": NeedRow(
        on=(_find_named_queue,), creates=True, tags="tags", tagging="sqs:TagQueue"
    ),
    "GetQueueUrl": NeedRow(on=(_find_named_queue,)),
    "ListQueues": NeedRow(),
    "ListDeadLetterSourceQueues": _on_queue(),
    "GetQueueAttributes": _on_queue(),
    "SetQueueAttributes": _on_queue(),
    "PurgeQueue": _on_queue(),
    "DeleteQueue": _on_queue(),
    "ListQueueTags": _on_queue(),
    "TagQueue": NeedRow(on=(_find_queue,), tags="Tags"),
    "UntagQueue": NeedRow(on=(_find_queue,), tag_keys="TagKeys"),
    "SendMessage": _on_queue(),
    "ReceiveMessage": _on_queue(),
    "DeleteMessage": _on_queue(),
    "ChangeMessageVisibility": _on_queue(),
    "SendMessageBatch": _on_queue("SendMessage"),
    "DeleteMessageBatch": _on_queue("DeleteMessage"),
    "ChangeMessageVisibilityBatch": _on_queue("ChangeMessageVisibility"),
}

_BUS = "arn:aws:events:{region}:{account}:event-bus/{name}"
EVENTS_PRINCIPAL = "events.amazonaws.com"


def _find_bus_arn(call: AskedCall, name: str) -> str:
    return name if name.startswith("arn:") else fill(_BUS, call, name)


def _rules(path: str) -> TargetRule:
    """The rules with the names at `path` on the bus of the request."""

    def find(call: AskedCall) -> Sequence[Target]:
        bus = _find_bus_arn(call, next(iter(call.get_values("EventBusName")), DEFAULT_BUS))
        place, slash, bus_name = bus.partition(":event-bus/")
        if not slash:
            return (Target(ALL),)
        folder = "" if bus_name == DEFAULT_BUS else f"{bus_name}/"
        return [Target(f"{place}:rule/{folder}{it}") for it in call.get_values(path)] or (
            Target(ALL),
        )

    return find


def _find_bus(call: AskedCall) -> Sequence[Target]:
    names = call.get_values("Name") or (DEFAULT_BUS,)
    return [Target(_find_bus_arn(call, name)) for name in names]


def _find_creator(call: AskedCall, _: str) -> Context:
    """`events:creatorAccount`: every rule is made by its account."""
    return {"events:creatoraccount": (call.scope.account,)}


def _find_pattern_keys(call: AskedCall, _: str) -> Context:
    """The sources and types that the pattern of PutRule matches.

    A value that is not a text becomes its JSON, which no condition on names allows.
    """
    found: dict[str, Sequence[str]] = {}
    for text in call.get_values("EventPattern"):
        try:
            pattern = json.loads(text)
        except (ValueError, RecursionError):
            continue  # the operation refuses it
        for path in PATTERN_PATHS:
            values = pattern
            for name in path.split("."):
                values = values.get(name) if isinstance(values, dict) else None
            if isinstance(values, list):
                found[f"events:{path}".lower()] = [_print_match(it) for it in values]
    return found


PATTERN_PATHS = (
    "source", "detail-type", "detail.userIdentity.principalId", "detail.service",
    "detail.eventTypeCode",
)  # fmt: skip
"""The members of a pattern that have a context key."""


def _print_match(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _put_events(call: AskedCall) -> Iterable[NeededPermission]:
    """PutEvents: the permission for each entry, on its bus."""
    entries: Sequence[Mapping[str, Any]] = call.params.get("Entries") or ({},)
    for entry in entries:
        bus = _find_bus_arn(call, str(entry.get("EventBusName") or DEFAULT_BUS))
        members = {"events:source": "Source", "events:detail-type": "DetailType"}
        keys = {name: (str(entry[it]),) for name, it in members.items() if entry.get(it)}
        yield build_need(call, "events:PutEvents", Target(bus), keys)


_ON_RULE = NeedRow(on=(_rules("Name"),), more=(_find_creator,))
_ON_TARGETS = NeedRow(on=(_rules("Rule"),), more=(_find_creator,))
EVENTS: Rows = {
    "PutRule": NeedRow(
        on=(_rules("Name"),), more=(_find_creator, _find_pattern_keys), tags="Tags",
        tagging="events:TagResource", passes=(("RoleArn", EVENTS_PRINCIPAL),),
    ),
    "DescribeRule": _ON_RULE,
    "ListRules": NeedRow(),
    "EnableRule": _ON_RULE,
    "DisableRule": _ON_RULE,
    "DeleteRule": _ON_RULE,
    "TestEventPattern": NeedRow(),
    "PutTargets": NeedRow(
        on=(_rules("Rule"),), more=(_find_creator,), keys={"events:TargetArn": "Targets.Arn"},
        passes=(("Targets.RoleArn", EVENTS_PRINCIPAL),),
    ),
    "RemoveTargets": _ON_TARGETS,
    "ListTargetsByRule": _ON_TARGETS,
    "ListRuleNamesByTarget": NeedRow(),
    "PutEvents": _put_events,
    "DescribeEventBus": NeedRow(on=(_find_bus,)),
    "ListEventBuses": NeedRow(),
    "ListTagsForResource": NeedRow(on=(build_arn_rule("ResourceARN"),), more=(_find_creator,)),
    "TagResource": NeedRow(on=(build_arn_rule("ResourceARN"),), more=(_find_creator,), tags="Tags"),
    "UntagResource": NeedRow(
        on=(build_arn_rule("ResourceARN"),), more=(_find_creator,), tag_keys="TagKeys"
    ),
}  # fmt: skip

_GROUP = "arn:aws:scheduler:{region}:{account}:schedule-group/{name}"
_SCHEDULE_ROLE = (("Target.RoleArn", "scheduler.amazonaws.com"),)


def _find_schedule(call: AskedCall) -> Sequence[Target]:
    group = next(iter(call.get_values("GroupName")), DEFAULT_GROUP)
    pattern = "arn:aws:scheduler:{region}:{account}:schedule/{name}"
    return [Target(fill(pattern, call, f"{group}/{it}")) for it in call.get_values("Name")] or (
        Target(ALL),
    )


def _delete_schedules(call: AskedCall) -> Iterable[NeededPermission]:
    """DeleteScheduleGroup deletes the schedules of the group."""
    for group in call.get_values("Name"):
        pattern = "arn:aws:scheduler:{region}:{account}:schedule/{name}/*"
        yield build_need(call, "scheduler:DeleteSchedule", Target(fill(pattern, call, group)), {})


_ON_SCHEDULE = NeedRow(on=(_find_schedule,))
_WRITE_SCHEDULE = NeedRow(on=(_find_schedule,), passes=_SCHEDULE_ROLE)
SCHEDULER: Rows = {
    "CreateSchedule": _WRITE_SCHEDULE,
    "GetSchedule": _ON_SCHEDULE,
    "ListSchedules": NeedRow(),
    "UpdateSchedule": _WRITE_SCHEDULE,
    "DeleteSchedule": _ON_SCHEDULE,
    "CreateScheduleGroup": NeedRow(
        on=(build_name_rule(_GROUP, "Name"),),
        creates=True,
        tags="Tags",
        tagging="scheduler:TagResource",
    ),
    "GetScheduleGroup": NeedRow(on=(build_name_rule(_GROUP, "Name"),)),
    "ListScheduleGroups": NeedRow(),
    "DeleteScheduleGroup": NeedRow(
        on=(build_name_rule(_GROUP, "Name"),), further=(_delete_schedules,)
    ),
    "ListTagsForResource": NeedRow(on=(build_arn_rule("ResourceArn"),)),
    "TagResource": NeedRow(on=(build_arn_rule("ResourceArn"),), tags="Tags"),
    "UntagResource": NeedRow(on=(build_arn_rule("ResourceArn"),), tag_keys="TagKeys"),
}
ROWS: Mapping[str, Rows] = {"sns": SNS, "sqs": SQS, "events": EVENTS, "scheduler": SCHEDULER}
