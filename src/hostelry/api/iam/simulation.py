"""SimulatePrincipalPolicy and SimulateCustomPolicy."""

from collections.abc import Iterable, Sequence

import msgspec

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.answers import (
    build_page,
    invalid_input,
    parse_document,
    validation_failed,
)
from hostelry.api.iam.policy import get_policy_at
from hostelry.api.iam.role import ROLES
from hostelry.api.iam.user import USERS
from hostelry.domain.principal import User
from hostelry.domain.role import ManagedPolicy, Role, parse_entity_name
from hostelry.permissions.authorization import Authorization, Grants, ResourcePolicy, authorize
from hostelry.permissions.document import DocumentKind
from hostelry.permissions.evaluation import AccessRequest, Policy
from hostelry.permissions.wildcard import (
    MAX_WORK_CHARACTERS,
    Context,
    MatchWork,
    TooMuchMatching,
)

MAX_SIMULATIONS = 10_000
# The cost in characters of a decision, and of each policy or key that its result names.
RESULT_CHARACTERS = 500
TOO_MUCH = (
    f"The simulation compares more than {MAX_WORK_CHARACTERS} characters of policies, actions,"
    " resources and context values; ask for fewer actions or resources in a call, for smaller pages"
    " (MaxItems), or for shorter policies and values."
)
UNSUPPORTED = (
    "ResourceHandlingOption",
    "PolicyExclusionList",
    "OrderedOrganizationPolicyInputList",
)
USER = "arn:aws:iam::{account}:user/NAME"


class _Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a simulation, and the policy that each of its resources has."""

    grants: Grants
    account: str
    who: frozenset[str] = frozenset()
    resource: ResourcePolicy | None = None


def simulate_principal_policy(context: CallContext, params: Params) -> Result:
    """SimulatePrincipalPolicy: the decisions of the policies of a role or a user."""
    principal = _find_principal(context, params["PolicySourceArn"])
    policies = _get_policies(context, principal)
    given = _parse_policies(params.get("PolicyInputList"), "PolicyInputList")
    keys = {
        "aws:principalarn": (principal.arn,),
        "aws:principalaccount": (principal.account,),
        **{f"aws:principaltag/{key.lower()}": (value,) for key, value in principal.tags.items()},
    }
    if isinstance(principal, User):
        keys |= {"aws:username": (principal.name,), "aws:userid": (principal.id,)}
    boundary = _get_boundary(context, principal, params)
    return _simulate(context, params, Grants(identity=(*policies, *given), boundary=boundary), keys)


def _find_principal(context: CallContext, arn: str) -> Role | User:
    """The role or user with the ARN. Raises InvalidInput for another ARN, or NoSuchEntity."""
    for kind in (ROLES, USERS):
        name = parse_entity_name(arn, kind.word.lower())
        if name:
            principal = kind.find(context, name).value
            if principal.arn != arn:
                raise kind.records.not_found(context, name)
            return principal
    raise invalid_input(f"Invalid Entity Arn: {arn} does not clearly define entity type and name.")


def simulate_custom_policy(context: CallContext, params: Params) -> Result:
    """SimulateCustomPolicy: the decisions of given policies."""
    policies = _parse_policies(params["PolicyInputList"], "PolicyInputList")
    grants = Grants(identity=policies, boundary=_parse_boundary(params))
    return _simulate(context, params, grants, {})


def _simulate(call: CallContext, params: Params, grants: Grants, keys: Context) -> Result:
    """The page of decisions on each action and resource. Raises InvalidInput beyond the limits."""
    for member in UNSUPPORTED:
        if params.get(member) is not None:
            raise validation_failed(f"{member} is not supported by Hostelry.")
    actions, resources = params["ActionNames"], params.get("ResourceArns") or ("*",)
    if len(actions) * len(resources) > MAX_SIMULATIONS:
        raise invalid_input(
            f"{len(actions)} actions on {len(resources)} resources; at most {MAX_SIMULATIONS}"
            " decisions are simulated in a call."
        )
    given = {
        entry["ContextKeyName"].lower(): tuple(entry.get("ContextKeyValues") or ())
        for entry in params.get("ContextEntries") or ()
        if entry.get("ContextKeyName")
    }
    context = {**keys, **given}
    pairs = [(action, resource) for action in actions for resource in resources]
    page, members = build_page(params, [(f"{n:06d}", it) for n, it in enumerate(pairs)])
    for action, _ in page:
        _check_action(action)
    requests = [AccessRequest(action=it, resource=on, context=context) for it, on in page]
    try:
        results = _decide_each(call, requests, _find_simulated(call, params, grants))
    except TooMuchMatching:
        raise invalid_input(TOO_MUCH) from None
    return {"EvaluationResults": results, **members}


def _decide_each(
    call: CallContext, requests: Sequence[AccessRequest], simulated: _Simulated
) -> list[Result]:
    """The decision on each request. Raises TooMuchMatching once their common budget is used up."""
    work, results = MatchWork(), []
    for request in requests:
        call.check_time()
        decision = authorize(
            simulated.grants,
            simulated.who,
            simulated.account,
            request,
            simulated.resource,
            work,
        )
        num_named = 1 + len(decision.matched) + len(decision.missing)
        work.spend(RESULT_CHARACTERS * num_named)
        results.append(_describe(request, decision))
    return results


def _find_simulated(call: CallContext, params: Params, grants: Grants) -> _Simulated:
    """The caller and the resources' policy. As on AWS, a ResourcePolicy needs a user as caller."""
    document, caller = params.get("ResourcePolicy"), params.get("CallerArn") or ""
    if document is None:
        return _Simulated(grants=grants, account=call.scope.account)
    parts = caller.split(":", 5)
    if parts[:4] != ["arn", "aws", "iam", ""] or not parts[-1].startswith("user/"):
        raise invalid_input(
            "With a ResourcePolicy, CallerArn must be the ARN of a user"
            f" ({USER.format(account=call.scope.account)}); got {caller or 'none'}."
        )
    owner = (params.get("ResourceOwner") or parts[4]).removeprefix("arn:aws:iam::")
    policy = Policy(
        id="ResourcePolicy",
        type="resource",
        statements=parse_document(document, DocumentKind.RESOURCE),
    )
    return _Simulated(
        grants=grants,
        account=parts[4],
        who=frozenset({f"AWS:{caller}"}),
        resource=ResourcePolicy(account=owner.removesuffix(":root"), policy=policy),
    )


def _check_action(action: str) -> None:
    service, colon, name = action.partition(":")
    if not (service and colon and name) or "*" in action or "?" in action:
        raise invalid_input(f"Invalid Entity Action: {action}")


def _get_policies(context: CallContext, principal: Role | User) -> Iterable[Policy]:
    """The policies of a principal: the inline policies, then the attached policies."""
    kind = "user" if isinstance(principal, User) else "role"
    for name, document in principal.inline_policies.items():
        yield _build_policy(f"{kind}_{principal.name}_{name}", kind, document)
    for arn in principal.attached_policies:
        policy = get_policy_at(context, arn)
        if policy is not None:
            yield _from_managed(policy)


def _get_boundary(
    context: CallContext, principal: Role | User, params: Params
) -> tuple[Policy, ...] | None:
    """Get the boundary of the request, or else of the principal, or None."""
    given = _parse_boundary(params)
    if given is not None or principal.boundary is None:
        return given
    policy = get_policy_at(context, principal.boundary)
    return (_from_managed(policy),) if policy else ()


def _parse_boundary(params: Params) -> tuple[Policy, ...] | None:
    member = "PermissionsBoundaryPolicyInputList"
    return _parse_policies(params[member], member) if params.get(member) else None


def _parse_policies(documents: Sequence[str] | None, member: str) -> tuple[Policy, ...]:
    """The policies of a request. Raises MalformedPolicyDocument."""
    return tuple(
        _build_policy(f"{member}.{number}", "none", document)
        for number, document in enumerate(documents or (), start=1)
    )


def _from_managed(policy: ManagedPolicy) -> Policy:
    kind = "aws-managed" if policy.account == "aws" else "user-managed"
    return _build_policy(policy.name, kind, policy.document)


def _build_policy(name: str, kind: str, document: str) -> Policy:
    statements = parse_document(document, DocumentKind.IDENTITY)
    return Policy(id=name, type=kind, statements=statements)


def _describe(request: AccessRequest, decision: Authorization) -> Result:
    """A decision in AWS's form, without the places of statements in their documents."""
    shown: Result = {
        "EvalActionName": request.action,
        "EvalResourceName": request.resource,
        "EvalDecision": decision.outcome.value,
        "MatchedStatements": [
            {"SourcePolicyId": policy.id, "SourcePolicyType": policy.type}
            for policy in decision.matched
        ],
        "MissingContextValues": list(decision.missing),
    }
    if decision.within_boundary is not None:
        shown["PermissionsBoundaryDecisionDetail"] = {
            "AllowedByPermissionsBoundary": decision.within_boundary
        }
    return shown
