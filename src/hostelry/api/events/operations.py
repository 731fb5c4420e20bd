"""EventBridge's operations by name."""

from collections.abc import Mapping

from hostelry.api.context import Operation
from hostelry.api.events import bus, put_events, rule, tag, target

OPERATIONS: Mapping[str, Operation] = {
    "PutRule": rule.put_rule,
    "DescribeRule": rule.describe_rule,
    "ListRules": rule.list_rules,
    "EnableRule": rule.enable_rule,
    "DisableRule": rule.disable_rule,
    "DeleteRule": rule.delete_rule,
    "TestEventPattern": rule.check_event,
    "PutTargets": target.put_targets,
    "RemoveTargets": target.remove_targets,
    "ListTargetsByRule": target.list_targets_by_rule,
    "ListRuleNamesByTarget": target.list_rule_names_by_target,
    "PutEvents": put_events.put_events,
    "DescribeEventBus": bus.describe_event_bus,
    "ListEventBuses": bus.list_event_buses,
    "ListTagsForResource": tag.list_tags_for_resource,
    "TagResource": tag.tag_resource,
    "UntagResource": tag.untag_resource,
}
