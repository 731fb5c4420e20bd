"""The operations of CloudWatch Logs by name."""

from collections.abc import Mapping

from hostelry.api.context import Operation
from hostelry.api.logs import filter_events, get_events, group, put_events, stream, tag

OPERATIONS: Mapping[str, Operation] = {
    "CreateLogGroup": group.create_log_group,
    "DescribeLogGroups": group.describe_log_groups,
    "DeleteLogGroup": group.delete_log_group,
    "PutRetentionPolicy": group.put_retention_policy,
    "DeleteRetentionPolicy": group.delete_retention_policy,
    "CreateLogStream": stream.create_log_stream,
    "DescribeLogStreams": stream.describe_log_streams,
    "DeleteLogStream": stream.delete_log_stream,
    "PutLogEvents": put_events.put_log_events,
    "GetLogEvents": get_events.get_log_events,
    "FilterLogEvents": filter_events.filter_log_events,
    "TagResource": tag.tag_resource,
    "UntagResource": tag.untag_resource,
    "ListTagsForResource": tag.list_tags_for_resource,
    "TagLogGroup": tag.tag_log_group,
    "UntagLogGroup": tag.untag_log_group,
    "ListTagsLogGroup": tag.list_tags_log_group,
}
