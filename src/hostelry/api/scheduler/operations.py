"""EventBridge Scheduler's operations by name."""

from collections.abc import Mapping

from hostelry.api.context import Operation
from hostelry.api.scheduler import group, schedule, tag

OPERATIONS: Mapping[str, Operation] = {
    "CreateSchedule": schedule.create_schedule,
    "GetSchedule": schedule.get_schedule,
    "ListSchedules": schedule.list_schedules,
    "UpdateSchedule": schedule.update_schedule,
    "DeleteSchedule": schedule.delete_schedule,
    "CreateScheduleGroup": group.create_schedule_group,
    "GetScheduleGroup": group.get_schedule_group,
    "ListScheduleGroups": group.list_schedule_groups,
    "DeleteScheduleGroup": group.delete_schedule_group,
    "ListTagsForResource": tag.list_tags_for_resource,
    "TagResource": tag.tag_resource,
    "UntagResource": tag.untag_resource,
}
