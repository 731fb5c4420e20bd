"""The permissions that operations of CloudWatch and CloudWatch Logs need."""

from collections.abc import Mapping, Sequence

from hostelry.api.authorization.row import AskedCall, NeedRow, Rows, Target, TargetRule
from hostelry.api.authorization.targets import build_arn_rule, build_name_rule, fill
from hostelry.permissions.needs.needed import ALL

_ALARM = "arn:aws:cloudwatch:{region}:{account}:alarm:{name}"
_EVERY_ALARM = "arn:aws:cloudwatch:{region}:{account}:alarm:*"
_DASHBOARD = "arn:aws:cloudwatch::{account}:dashboard/{name}"
_ON_ALARMS = NeedRow(on=(build_name_rule(_ALARM, "AlarmNames"),))
_PUT_ALARM = NeedRow(
    on=(build_name_rule(_ALARM, "AlarmName"),),
    keys={"cloudwatch:AlarmActions": "AlarmActions|OKActions|InsufficientDataActions"},
    tags="Tags",
    tagging="cloudwatch:TagResource",
)
CLOUDWATCH: Rows = {
    "PutMetricData": NeedRow(keys={"cloudwatch:namespace": "Namespace"}),
    "GetMetricData": NeedRow(),
    "GetMetricStatistics": NeedRow(),
    "ListMetrics": NeedRow(),
    "PutMetricAlarm": _PUT_ALARM,
    "PutCompositeAlarm": _PUT_ALARM,
    "DescribeAlarms": NeedRow(on=(build_name_rule(_ALARM, "AlarmNames", missing=_EVERY_ALARM),)),
    "DescribeAlarmsForMetric": NeedRow(),
    "DescribeAlarmHistory": NeedRow(
        on=(build_name_rule(_ALARM, "AlarmName", missing=_EVERY_ALARM),)
    ),
    "SetAlarmState": NeedRow(on=(build_name_rule(_ALARM, "AlarmName"),)),
    "EnableAlarmActions": _ON_ALARMS,
    "DisableAlarmActions": _ON_ALARMS,
    "DeleteAlarms": _ON_ALARMS,
    "PutDashboard": NeedRow(
        on=(build_name_rule(_DASHBOARD, "DashboardName"),),
        tags="Tags",
        tagging="cloudwatch:TagResource",
    ),
    "GetDashboard": NeedRow(on=(build_name_rule(_DASHBOARD, "DashboardName"),)),
    "ListDashboards": NeedRow(),
    "DeleteDashboards": NeedRow(on=(build_name_rule(_DASHBOARD, "DashboardNames"),)),
    "ListTagsForResource": NeedRow(on=(build_arn_rule("ResourceARN"),)),
    "TagResource": NeedRow(on=(build_arn_rule("ResourceARN"),), tags="Tags"),
    "UntagResource": NeedRow(on=(build_arn_rule("ResourceARN"),), tag_keys="TagKeys"),
}

# The guide of CloudWatch Logs names groups with ":*" at the end in policies of all operations but
# those on tags, and AWS's refusals show the group followed by ":log-stream:".
_GROUP = "arn:aws:logs:{region}:{account}:log-group:{name}"
_IN_GROUP = ":log-stream:"
_EVERY_GROUP = "arn:aws:logs:{region}:{account}:log-group::log-stream:"


def _groups(path: str) -> TargetRule:
    """The log groups with the names or ARNs at `path`."""

    def find(call: AskedCall) -> Sequence[Target]:
        arns = [_find_group_arn(call, it) for it in call.get_values(path)]
        return [Target(arn + _IN_GROUP) for arn in arns] or (Target(ALL),)

    return find


def _find_group_arn(call: AskedCall, name: str) -> str:
    """The ARN of a log group's name or ARN, without ":*"."""
    return name.removesuffix(":*") if name.startswith("arn:") else fill(_GROUP, call, name)


def _find_tagged_group(call: AskedCall) -> Sequence[Target]:
    return [Target(_find_group_arn(call, it)) for it in call.get_values("resourceArn")] or (
        Target(ALL),
    )


def _find_stream(call: AskedCall) -> Sequence[Target]:
    groups = call.get_values("logGroupName|logGroupIdentifier")
    streams = call.get_values("logStreamName")
    places = [_find_group_arn(call, group) + _IN_GROUP for group in groups]
    return [Target(place + it) for place in places for it in streams] or (Target(ALL),)


def _find_described_groups(call: AskedCall) -> Sequence[Target]:
    """The groups that DescribeLogGroups is asked for, or else the text that AWS shows for all."""
    arns = [_find_group_arn(call, it) for it in call.get_values("logGroupIdentifiers")]
    return [Target(arn + _IN_GROUP) for arn in arns] or (Target(fill(_EVERY_GROUP, call)),)


def _tag_new_group(call: AskedCall) -> Sequence[Target]:
    return [Target(fill(_GROUP, call, it)) for it in call.get_values("logGroupName")]


_ON_GROUP = NeedRow(on=(_groups("logGroupName"),))
_IN_STREAM = NeedRow(on=(_find_stream,))
_IDENTIFIED = NeedRow(on=(_groups("logGroupName|logGroupIdentifier"),))
LOGS: Rows = {
    "CreateLogGroup": NeedRow(
        on=(_groups("logGroupName"),), creates=True, tags="tags", tagging="logs:TagResource",
        tagged=_tag_new_group,
    ),
    "DescribeLogGroups": NeedRow(on=(_find_described_groups,)),
    "DeleteLogGroup": _ON_GROUP,
    "PutRetentionPolicy": _ON_GROUP,
    "DeleteRetentionPolicy": _ON_GROUP,
    "CreateLogStream": _IN_STREAM,
    "DescribeLogStreams": _IDENTIFIED,
    "DeleteLogStream": _IN_STREAM,
    "PutLogEvents": _IN_STREAM,
    "GetLogEvents": _IN_STREAM,
    "FilterLogEvents": _IDENTIFIED,
    "TagResource": NeedRow(on=(_find_tagged_group,), tags="tags"),
    "UntagResource": NeedRow(on=(_find_tagged_group,), tag_keys="tagKeys"),
    "ListTagsForResource": NeedRow(on=(_find_tagged_group,)),
    "TagLogGroup": NeedRow(on=(_groups("logGroupName"),), tags="tags"),
    "UntagLogGroup": NeedRow(on=(_groups("logGroupName"),), tag_keys="tags"),
    "ListTagsLogGroup": _ON_GROUP,
}  # fmt: skip
ROWS: Mapping[str, Rows] = {
    "cloudwatch": CLOUDWATCH,
    "logs": LOGS,
    "cloudtrail": {"LookupEvents": NeedRow()},
}
