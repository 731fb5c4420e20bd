"""EventBridge: rules and their targets on the one bus `default`, tags of rules, and PutEvents."""

import json
import uuid
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.execution_role import can_assume
from hostelry.api.page import ListPaging, order_by_name
from hostelry.api.record_kind import RecordKind
from hostelry.api.rights import check_delivery
from hostelry.api.tags import TagOperations, parse_tags, write_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.event_rule import (
    DEFAULT_BUS,
    MAX_AGE_S,
    MAX_RETRIES,
    EventRule,
    RuleTarget,
    bus_arn,
    rule_arn,
)
from hostelry.events.call_rows import TooManyCallsError
from hostelry.events.calls import (
    PatternError,
    build_bus_calls,
    matches_event,
    names_source,
    read_pattern,
)
from hostelry.events.input_text import InputError, check_input
from hostelry.events.object_message import SOURCE
from hostelry.messaging.failed_delivery import queue_at
from hostelry.messaging.filter_policy import Policy
from hostelry.schedules.targets import TargetError, check_arn
from hostelry.store.records import Versioned

PRINCIPAL = "events.amazonaws.com"
LISTS = ListPaging(page_size=100, size_member="Limit")
MAX_RULES = 300
MAX_TARGETS = 5
MAX_BYTES = 1024 * 1024  # of all entries of a call
NEEDED = ("Source", "DetailType", "Detail")
EVENT_MEMBERS = ("id", "account", "source", "time", "region", "resources", "detail-type")
PARAMETERS = (
    "KinesisParameters",
    "RunCommandParameters",
    "EcsParameters",
    "BatchParameters",
    "SqsParameters",
    "HttpParameters",
    "RedshiftDataParameters",
    "SageMakerPipelineParameters",
    "AppSyncParameters",
)
INPUTS = ("Input", "InputPath", "InputTransformer")


def _not_found(message: str) -> ServiceError:
    return ServiceError("ResourceNotFoundException", message, 400)


def _invalid(message: str) -> ServiceError:
    return ServiceError("ValidationException", message, 400)


RULES = RecordKind[EventRule](
    records=lambda state: state.event_rules,
    not_found=lambda _, name: _not_found(f"Rule {name} does not exist on EventBus {DEFAULT_BUS}."),
)


def put_rule(context: CallContext, params: Params) -> Result:
    """PutRule: makes a rule, or replaces a rule, which keeps its targets and tags."""
    _check_bus(context, params.get("EventBusName"))
    if params.get("ScheduleExpression"):
        raise _invalid(
            "ScheduleExpression is not supported for rules here: use EventBridge Scheduler"
            " (CreateSchedule), which calls the same targets."
        )
    text = params.get("EventPattern")
    if not text:
        raise _invalid("Parameter(s) EventPattern must be specified.")
    check_pattern(context, parse_pattern(text))
    stored = RULES.get(context, params["Name"])
    if stored is None and len(RULES.all(context)) >= MAX_RULES:
        raise ServiceError("LimitExceededException", f"There are {MAX_RULES} rules, the limit.")
    rule = EventRule(
        scope=context.scope,
        name=params["Name"],
        pattern=text,
        is_enabled=params.get("State", "ENABLED") != "DISABLED",
        description=params.get("Description"),
        role_arn=params.get("RoleArn"),
        targets=stored.value.targets if stored else (),
    )
    RULES.put(context, rule, stored)
    if stored is None:
        write_tags(context, rule.arn, parse_tags(params.get("Tags")))
    return {"RuleArn": rule.arn}


def describe_rule(context: CallContext, params: Params) -> Result:
    """DescribeRule."""
    rule = _find_rule(context, params, "Name").value
    return {**_summarize(rule), "CreatedBy": context.scope.account}


def list_rules(context: CallContext, params: Params) -> Result:
    """ListRules, by name."""
    _check_bus(context, params.get("EventBusName"))
    prefix = params.get("NamePrefix", "")
    rules = [it for it in RULES.values(context) if it.name.startswith(prefix)]
    rows = order_by_name((it.name, _summarize(it)) for it in rules)
    return LISTS.answer(context, "ListRules", params, "Rules", rows)


def enable_rule(context: CallContext, params: Params) -> Result:
    """EnableRule."""
    return _switch(context, params, is_enabled=True)


def disable_rule(context: CallContext, params: Params) -> Result:
    """DisableRule."""
    return _switch(context, params, is_enabled=False)


def _switch(context: CallContext, params: Params, *, is_enabled: bool) -> Result:
    stored = _find_rule(context, params, "Name")
    RULES.put(context, replace(stored.value, is_enabled=is_enabled), stored)
    return {}


def delete_rule(context: CallContext, params: Params) -> Result:
    """DeleteRule. A missing rule is ignored, as on AWS. A rule with targets is refused."""
    _check_bus(context, params.get("EventBusName"))
    stored = RULES.get(context, params["Name"])
    if stored is None:
        return {}
    if stored.value.targets:
        raise _invalid("Rule can't be deleted since it has targets.")
    RULES.delete(context, stored)
    write_tags(context, stored.value.arn, {})
    return {}


def check_event_pattern(context: CallContext, params: Params) -> Result:
    """TestEventPattern."""
    pattern = parse_pattern(params["EventPattern"])
    try:
        event = json.loads(params["Event"])
    except (ValueError, RecursionError) as error:
        raise _invalid(f"Parameter Event is not valid JSON: {error}.") from None
    missing = [it for it in EVENT_MEMBERS if not isinstance(event, dict) or it not in event]
    if missing:
        raise _invalid(f"Parameter Event is not valid: it has no {missing[0]}.")
    return {"Result": matches_event(pattern, event, context.check_time)}


def put_targets(context: CallContext, params: Params) -> Result:
    """PutTargets: adds targets, or replaces those with the same ids. All of them or none."""
    stored = _find_rule(context, params, "Rule")
    rule = stored.value
    new = {it["Id"]: _build_target(context, rule, it) for it in params["Targets"]}
    if len(new) != len(params["Targets"]):
        raise _invalid("Target ids must be unique in a request.")
    targets = {**{it.id: it for it in rule.targets}, **new}
    if len(targets) > MAX_TARGETS:
        raise ServiceError(
            "LimitExceededException",
            f"The requested resource exceeds the maximum number allowed: a rule has at most"
            f" {MAX_TARGETS} targets, {rule.name} would have {len(targets)}.",
        )
    RULES.put(context, replace(rule, targets=tuple(targets.values())), stored)
    return {"FailedEntryCount": 0, "FailedEntries": []}


def remove_targets(context: CallContext, params: Params) -> Result:
    """RemoveTargets. Missing ids are ignored."""
    stored = _find_rule(context, params, "Rule")
    kept = tuple(it for it in stored.value.targets if it.id not in params["Ids"])
    RULES.put(context, replace(stored.value, targets=kept), stored)
    return {"FailedEntryCount": 0, "FailedEntries": []}


def list_targets_by_rule(context: CallContext, params: Params) -> Result:
    """ListTargetsByRule, by id."""
    rule = _find_rule(context, params, "Rule").value
    rows = order_by_name((it.id, dict(it.given)) for it in rule.targets)
    return LISTS.answer(context, "ListTargetsByRule", params, "Targets", rows)


def list_rule_names_by_target(context: CallContext, params: Params) -> Result:
    """ListRuleNamesByTarget, by name."""
    _check_bus(context, params.get("EventBusName"))
    arn = params["TargetArn"]
    rules = [it for it in RULES.values(context) if arn in {target.arn for target in it.targets}]
    rows = order_by_name((it.name, it.name) for it in rules)
    return LISTS.answer(context, "ListRuleNamesByTarget", params, "RuleNames", rows)


def put_events(context: CallContext, params: Params) -> Result:
    """PutEvents: each entry is accepted durably, or refused with its reason."""
    if params.get("EndpointId"):
        raise _invalid("EndpointId is not supported here: there is one region.")
    entries = params["Entries"]
    if sum(len(str(it)) for entry in entries for it in entry.values()) > MAX_BYTES:
        raise _invalid(f"Total size of the entries in the request is over {MAX_BYTES} bytes.")
    rules = RULES.values(context)
    results = []
    for entry in entries:
        try:
            event = _build_event(context, entry)
            at = float(entry.get("Time", context.now))
            calls = build_bus_calls(event, at, rules, context.now, check=context.check_time)
            context.event_calls.accept(event["id"], calls, context.now)
            results.append({"EventId": event["id"]})
        except ServiceError as error:
            results.append({"ErrorCode": error.code, "ErrorMessage": error.message})
        except TooManyCallsError as error:
            results.append({"ErrorCode": "ThrottlingException", "ErrorMessage": f"{error}."})
    return {"FailedEntryCount": sum("ErrorCode" in it for it in results), "Entries": results}


def describe_event_bus(context: CallContext, params: Params) -> Result:
    """DescribeEventBus."""
    _check_bus(context, params.get("Name"))
    return _describe_bus(context)


def list_event_buses(context: CallContext, params: Params) -> Result:
    """ListEventBuses."""
    is_listed = DEFAULT_BUS.startswith(params.get("NamePrefix", ""))
    return {"EventBuses": [_describe_bus(context)] if is_listed else []}


def _find_tagged(context: CallContext, params: Params) -> str:
    arn: str = params["ResourceARN"]
    name = arn.rpartition("/")[2]
    if RULES.get(context, name) is None or arn != rule_arn(context.scope, name):
        raise _not_found(f"Resource {arn} does not exist; rules have tags, and only they.")
    return arn


TAGS = TagOperations(find_arn=_find_tagged)


def _check_bus(context: CallContext, name: str | None) -> None:
    if name not in (None, DEFAULT_BUS, bus_arn(context.scope)):
        raise _not_found(
            f"Event bus {name} does not exist. There is the bus {DEFAULT_BUS}, and no other."
        )


def _describe_bus(context: CallContext) -> Result:
    return {"Name": DEFAULT_BUS, "Arn": bus_arn(context.scope)}


def _find_rule(context: CallContext, params: Params, member: str) -> Versioned[EventRule]:
    _check_bus(context, params.get("EventBusName"))
    return RULES.find(context, params[member])


def parse_pattern(text: str) -> Policy:
    """The pattern. Raises InvalidEventPatternException."""
    try:
        return read_pattern(text)
    except PatternError as error:
        raise ServiceError("InvalidEventPatternException", str(error)) from None


def check_pattern(context: CallContext, pattern: Policy) -> None:
    """Refuse a rule for objects in a store whose uploads this platform does not see."""
    if context.foreign_s3 and names_source(pattern, SOURCE):
        raise _invalid(
            f"EventPattern names the source {SOURCE}, but the objects are at {context.foreign_s3},"
            " whose uploads are not seen here. Start hostelry with its own object store (without"
            " --s3-endpoint), or send events of a source of your own by PutEvents."
        )


def _summarize(rule: EventRule) -> Result:
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


def _build_target(context: CallContext, rule: EventRule, given: Params) -> RuleTarget:
    where = f"target {given['Id']}"
    for name in PARAMETERS:
        if given.get(name):
            raise _invalid(f"{name} of {where} is not supported here: leave it out.")
    inputs = [name for name in INPUTS if given.get(name) is not None]
    if len(inputs) > 1:
        raise _invalid(f"Only one of {', '.join(INPUTS)} must be provided for {where}.")
    transformer, policy = given.get("InputTransformer") or {}, given.get("RetryPolicy") or {}
    target = RuleTarget(
        id=given["Id"],
        arn=given["Arn"],
        input=given.get("Input"),
        input_path=given.get("InputPath"),
        template=transformer.get("InputTemplate"),
        template_paths=dict(transformer.get("InputPathsMap") or {}),
        max_age_s=float(policy.get("MaximumEventAgeInSeconds", MAX_AGE_S)),
        max_retries=policy.get("MaximumRetryAttempts", MAX_RETRIES),
        dead_letter_arn=(given.get("DeadLetterConfig") or {}).get("Arn"),
        given=dict(given),
    )
    try:
        is_universal = check_arn(target.arn)
        check_input(rule, target)
    except (TargetError, InputError) as error:
        raise _invalid(f"{where}: {error}") from None
    _check_role(context, given.get("RoleArn"), where, is_needed=is_universal)
    letters = target.dead_letter_arn
    if letters is not None:
        if queue_at(context.state, letters, context.scope.account) is None:
            raise _invalid(f"The dead-letter queue {letters} of {where} does not exist.")
        check_delivery(context, letters)
    if given.get("RoleArn") is None:
        check_delivery(context, target.arn)
    return target


def _check_role(context: CallContext, arn: str | None, where: str, *, is_needed: bool) -> None:
    """Refuse a role that EventBridge cannot assume. If `is_needed`, refuse a missing role, too."""
    if arn is None:
        if is_needed:
            raise _invalid(f"RoleArn is required for {where}, which calls an operation.")
        return
    if context.checks_roles and not can_assume(context, PRINCIPAL, arn):
        raise _invalid(
            f"Provided role '{arn}' of {where} cannot be assumed by principal '{PRINCIPAL}': it is"
            " not there, or its trust policy does not allow that."
        )


def _build_event(context: CallContext, entry: Params) -> dict[str, Any]:
    """The event of an entry. Raises ServiceError with the code for the entry's result."""
    _check_bus(context, entry.get("EventBusName"))
    missing = [name for name in NEEDED if not entry.get(name)]
    if missing:
        message = f"Parameter {missing[0]} is not valid. Reason: {missing[0]} is a required."
        raise ServiceError("InvalidArgument", message)
    if entry["Source"].startswith("aws."):
        message = "Not authorized for the source: those that begin with aws. are the platform's."
        raise ServiceError("NotAuthorizedForSourceException", message)
    try:
        detail = json.loads(entry["Detail"])
    except (ValueError, RecursionError):
        detail = None
    if not isinstance(detail, dict):
        raise ServiceError("MalformedDetail", "Detail is malformed: it must be a JSON object.")
    at = datetime.fromtimestamp(float(entry.get("Time", context.now)), UTC)
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": entry["DetailType"],
        "source": entry["Source"],
        "account": context.scope.account,
        "time": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": context.scope.region,
        "resources": list(entry.get("Resources") or ()),
        "detail": detail,
    }
