"""PutTargets, RemoveTargets, ListTargetsByRule and ListRuleNamesByTarget."""

from dataclasses import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.events.bus import check_bus
from hostelry.api.events.refusals import invalid
from hostelry.api.events.rule import DEFAULT_PAGE_SIZE, find_rule
from hostelry.api.iam.execution_role import can_assume
from hostelry.api.page import PageTokens, page_of
from hostelry.base.errors import ServiceError
from hostelry.domain.event_rule import MAX_AGE_S, MAX_RETRIES, EventRule, RuleTarget
from hostelry.events.input_text import InputError, check_input
from hostelry.messaging.failed_delivery import queue_at
from hostelry.schedules.targets import TargetError, check_arn

PRINCIPAL = "events.amazonaws.com"
MAX_TARGETS = 5
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


def put_targets(context: CallContext, params: Params) -> Result:
    """PutTargets: added, or replaced where their ids are known; all of them or none."""
    stored = find_rule(context, params, "Rule")
    rule = stored.value
    new = {it["Id"]: target_of(context, rule, it) for it in params["Targets"]}
    if len(new) != len(params["Targets"]):
        raise invalid("Target ids must be unique in a request.")
    targets = {**{it.id: it for it in rule.targets}, **new}
    if len(targets) > MAX_TARGETS:
        raise ServiceError(
            "LimitExceededException",
            f"The requested resource exceeds the maximum number allowed: a rule has at most"
            f" {MAX_TARGETS} targets, {rule.name} would have {len(targets)}.",
        )
    _write(context, stored.version, replace(rule, targets=tuple(targets.values())))
    return {"FailedEntryCount": 0, "FailedEntries": []}


def remove_targets(context: CallContext, params: Params) -> Result:
    """RemoveTargets; ids that are not there change nothing."""
    stored = find_rule(context, params, "Rule")
    kept = tuple(it for it in stored.value.targets if it.id not in params["Ids"])
    _write(context, stored.version, replace(stored.value, targets=kept))
    return {"FailedEntryCount": 0, "FailedEntries": []}


def list_targets_by_rule(context: CallContext, params: Params) -> Result:
    """ListTargetsByRule, by id."""
    rule = find_rule(context, params, "Rule").value
    shown, following = page_of(
        PageTokens(context, "ListTargetsByRule", {**params, "Limit": None}),
        [((it.id, it.id), dict(it.given)) for it in rule.targets],
        params.get("Limit", DEFAULT_PAGE_SIZE),
    )
    return {"Targets": shown, **following}


def list_rule_names_by_target(context: CallContext, params: Params) -> Result:
    """ListRuleNamesByTarget, by name."""
    check_bus(context, params.get("EventBusName"))
    arn = params["TargetArn"]
    rules = [it.value for it in context.state.event_rules.list(context.scope)]
    shown, following = page_of(
        PageTokens(context, "ListRuleNamesByTarget", {**params, "Limit": None}),
        [((it.name, it.name), it.name) for it in rules if arn in {t.arn for t in it.targets}],
        params.get("Limit", DEFAULT_PAGE_SIZE),
    )
    return {"RuleNames": shown, **following}


def target_of(context: CallContext, rule: EventRule, given: Params) -> RuleTarget:
    """The target that a request describes, checked."""
    where = f"target {given['Id']}"
    for name in PARAMETERS:
        if given.get(name):
            raise invalid(f"{name} of {where} is not supported here: leave it out.")
    inputs = [name for name in INPUTS if given.get(name) is not None]
    if len(inputs) > 1:
        raise invalid(f"Only one of {', '.join(INPUTS)} must be provided for {where}.")
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
        raise invalid(f"{where}: {error}") from None
    check_role(context, given.get("RoleArn"), where, is_needed=is_universal)
    letters = target.dead_letter_arn
    if letters is not None and queue_at(context.state, letters) is None:
        raise invalid(f"The dead-letter queue {letters} of {where} does not exist.")
    return target


def check_role(context: CallContext, arn: str | None, where: str, *, is_needed: bool) -> None:
    """Refuse a role that EventBridge cannot assume, and an operation that is called without one."""
    if arn is None:
        if is_needed:
            raise invalid(f"RoleArn is required for {where}, which calls an operation.")
        return
    if context.checks_roles and not can_assume(context, PRINCIPAL, arn):
        raise invalid(
            f"Provided role '{arn}' of {where} cannot be assumed by principal '{PRINCIPAL}': it is"
            " not there, or its trust policy does not allow that."
        )


def _write(context: CallContext, version: int, rule: EventRule) -> None:
    context.state.event_rules.put(context.scope, rule.name, rule, expect=version)
