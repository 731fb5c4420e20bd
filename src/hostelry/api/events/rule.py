"""Operations on rules: put, described, listed, enabled, disabled, deleted; and their patterns."""

import json
from dataclasses import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.events.bus import check_bus
from hostelry.api.events.refusals import absent, invalid
from hostelry.api.page import PageTokens, page_of
from hostelry.api.tags import tags_of, write_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.event_rule import DEFAULT_BUS, EventRule
from hostelry.events.object_message import SOURCE
from hostelry.events.pattern import PatternError, matches_event, names_source, read_pattern
from hostelry.messaging.filter_policy import Policy
from hostelry.store.records import Versioned

DEFAULT_PAGE_SIZE = 100
MAX_RULES = 300
EVENT_MEMBERS = ("id", "account", "source", "time", "region", "resources", "detail-type")


def put_rule(context: CallContext, params: Params) -> Result:
    """PutRule: made, or replaced but for its targets and tags."""
    check_bus(context, params.get("EventBusName"))
    if params.get("ScheduleExpression"):
        raise invalid(
            "ScheduleExpression is not supported for rules here: use EventBridge Scheduler"
            " (CreateSchedule), which calls the same targets."
        )
    text = params.get("EventPattern")
    if not text:
        raise invalid("Parameter(s) EventPattern must be specified.")
    check_pattern(context, pattern_of(text))
    scope, name, records = context.scope, params["Name"], context.state.event_rules
    stored = records.get(scope, name)
    if stored is None and len(records.list(scope)) >= MAX_RULES:
        raise ServiceError("LimitExceededException", f"There are {MAX_RULES} rules, the limit.")
    rule = EventRule(
        scope=scope,
        name=name,
        pattern=text,
        is_enabled=params.get("State", "ENABLED") != "DISABLED",
        description=params.get("Description"),
        role_arn=params.get("RoleArn"),
        targets=stored.value.targets if stored else (),
    )
    records.put(scope, name, rule, expect=stored.version if stored else None)
    if stored is None:
        write_tags(context, rule.arn, tags_of(params.get("Tags")))
    return {"RuleArn": rule.arn}


def describe_rule(context: CallContext, params: Params) -> Result:
    """DescribeRule."""
    rule = find_rule(context, params, "Name").value
    return {**summary_of(rule), "CreatedBy": context.scope.account}


def list_rules(context: CallContext, params: Params) -> Result:
    """ListRules, by name."""
    check_bus(context, params.get("EventBusName"))
    prefix = params.get("NamePrefix", "")
    stored = context.state.event_rules.list(context.scope)
    rules = [it.value for it in stored if it.value.name.startswith(prefix)]
    shown, following = page_of(
        PageTokens(context, "ListRules", {**params, "Limit": None}),
        [((it.name, it.name), summary_of(it)) for it in rules],
        params.get("Limit", DEFAULT_PAGE_SIZE),
    )
    return {"Rules": shown, **following}


def enable_rule(context: CallContext, params: Params) -> Result:
    """EnableRule."""
    return _switch(context, params, is_enabled=True)


def disable_rule(context: CallContext, params: Params) -> Result:
    """DisableRule."""
    return _switch(context, params, is_enabled=False)


def delete_rule(context: CallContext, params: Params) -> Result:
    """DeleteRule; of a rule that is not there, too, as on AWS. Its targets go first."""
    check_bus(context, params.get("EventBusName"))
    stored = context.state.event_rules.get(context.scope, params["Name"])
    if stored is None:
        return {}
    if stored.value.targets:
        raise invalid("Rule can't be deleted since it has targets.")
    context.state.event_rules.delete(context.scope, params["Name"], expect=stored.version)
    write_tags(context, stored.value.arn, {})
    return {}


def check_event(context: CallContext, params: Params) -> Result:
    """TestEventPattern."""
    pattern = pattern_of(params["EventPattern"])
    try:
        event = json.loads(params["Event"])
    except (ValueError, RecursionError) as error:
        raise invalid(f"Parameter Event is not valid JSON: {error}.") from None
    missing = [it for it in EVENT_MEMBERS if not isinstance(event, dict) or it not in event]
    if missing:
        raise invalid(f"Parameter Event is not valid: it has no {missing[0]}.")
    return {"Result": matches_event(pattern, event, context.check_time)}


def find_rule(context: CallContext, params: Params, member: str) -> Versioned[EventRule]:
    """The rule that a request names; raises ResourceNotFoundException without one."""
    check_bus(context, params.get("EventBusName"))
    name = params[member]
    stored = context.state.event_rules.get(context.scope, name)
    if stored is None:
        raise absent(f"Rule {name} does not exist on EventBus {DEFAULT_BUS}.")
    return stored


def pattern_of(text: str) -> Policy:
    """The pattern; raises InvalidEventPatternException."""
    try:
        return read_pattern(text)
    except PatternError as error:
        raise ServiceError("InvalidEventPatternException", str(error)) from None


def check_pattern(context: CallContext, pattern: Policy) -> None:
    """Refuse a rule on objects whose arrival this platform does not see."""
    if context.foreign_s3 and names_source(pattern, SOURCE):
        raise invalid(
            f"EventPattern names the source {SOURCE}, but the objects are at {context.foreign_s3},"
            " whose uploads are not seen here. Start hostelry with its own object store (without"
            " --s3-endpoint), or send events of a source of your own by PutEvents."
        )


def summary_of(rule: EventRule) -> Result:
    """A rule as it is described and listed."""
    shown: Result = {
        "Name": rule.name,
        "Arn": rule.arn,
        "EventPattern": rule.pattern,
        "State": "ENABLED" if rule.is_enabled else "DISABLED",
        "EventBusName": DEFAULT_BUS,
    }
    if rule.description is not None:
        shown["Description"] = rule.description
    if rule.role_arn is not None:
        shown["RoleArn"] = rule.role_arn
    return shown


def _switch(context: CallContext, params: Params, *, is_enabled: bool) -> Result:
    stored = find_rule(context, params, "Name")
    rule = replace(stored.value, is_enabled=is_enabled)
    context.state.event_rules.put(context.scope, rule.name, rule, expect=stored.version)
    return {}
