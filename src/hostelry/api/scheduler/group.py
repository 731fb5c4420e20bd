"""CreateScheduleGroup, GetScheduleGroup, ListScheduleGroups and DeleteScheduleGroup."""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, page_of
from hostelry.api.scheduler.refusals import absent, conflict, invalid
from hostelry.api.tags import tags_of, write_tags
from hostelry.domain.event_schedule import DEFAULT_GROUP, ScheduleGroup, group_arn, schedule_key
from hostelry.domain.scope import Scope
from hostelry.store.records import State

DEFAULT_PAGE_SIZE = 100
ACTIVE = "ACTIVE"


def create_schedule_group(context: CallContext, params: Params) -> Result:
    """CreateScheduleGroup; the same call again, with its ClientToken, is answered as before."""
    scope, name = context.scope, params["Name"]
    tags = tags_of(params.get("Tags"))
    stored = context.state.schedule_groups.get(scope, name)
    if stored is not None:
        token = params.get("ClientToken")
        if token is not None and token == stored.value.client_token:
            return {"ScheduleGroupArn": stored.value.arn}
    if stored is not None or name == DEFAULT_GROUP:
        raise conflict(f"Schedule group {name} already exists.")
    group = ScheduleGroup(
        scope=scope, name=name, created_at=context.now, client_token=params.get("ClientToken")
    )
    context.state.schedule_groups.put(scope, name, group, expect=None)
    write_tags(context, group.arn, tags)
    return {"ScheduleGroupArn": group.arn}


def get_schedule_group(context: CallContext, params: Params) -> Result:
    """GetScheduleGroup."""
    return summary_of(find_group(context, params["Name"]))


def list_schedule_groups(context: CallContext, params: Params) -> Result:
    """ListScheduleGroups, by name."""
    stored = context.state.schedule_groups.list(context.scope)
    groups = [_default_group(context.scope), *(it.value for it in stored)]
    prefix = params.get("NamePrefix", "")
    shown, following = page_of(
        PageTokens(context, "ListScheduleGroups", params),
        [((it.name, it.name), summary_of(it)) for it in groups if it.name.startswith(prefix)],
        params.get("MaxResults", DEFAULT_PAGE_SIZE),
    )
    return {"ScheduleGroups": shown, **following}


def delete_schedule_group(context: CallContext, params: Params) -> Result:
    """DeleteScheduleGroup, with the schedules in it."""
    name = params["Name"]
    if name == DEFAULT_GROUP:
        raise invalid("The default schedule group cannot be deleted.")
    group = find_group(context, name)
    for stored in context.state.event_schedules.list(context.scope):
        if stored.value.group == name:
            key = schedule_key(name, stored.value.name)
            context.state.event_schedules.delete(context.scope, key, expect=stored.version)
    version = context.state.schedule_groups.get(context.scope, name)
    if version is not None:
        context.state.schedule_groups.delete(context.scope, name, expect=version.version)
    write_tags(context, group.arn, {})
    return {}


def find_group(context: CallContext, name: str) -> ScheduleGroup:
    """The group; raises ResourceNotFoundException where there is none of that name."""
    if name == DEFAULT_GROUP:
        return _default_group(context.scope)
    stored = context.state.schedule_groups.get(context.scope, name)
    if stored is None:
        raise absent(f"Schedule Group {name} does not exist.")
    return stored.value


def has_group(state: State, scope: Scope, arn: str) -> bool:
    """Whether a group of `scope` has this ARN."""
    name = arn.rpartition("/")[2]
    return arn == group_arn(scope, name) and (
        name == DEFAULT_GROUP or state.schedule_groups.get(scope, name) is not None
    )


def summary_of(group: ScheduleGroup) -> Result:
    """A group as it is described and listed."""
    return {
        "Arn": group.arn,
        "Name": group.name,
        "State": ACTIVE,
        "CreationDate": group.created_at,
        "LastModificationDate": group.created_at,
    }


def _default_group(scope: Scope) -> ScheduleGroup:
    return ScheduleGroup(scope=scope, name=DEFAULT_GROUP, created_at=0.0)
