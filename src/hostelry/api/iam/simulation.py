"""SimulatePrincipalPolicy and SimulateCustomPolicy."""

from collections.abc import Iterable, Sequence

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.page import iam_page
from hostelry.api.iam.policy import known_policy
from hostelry.api.iam.refusals import (
    checked_document,
    invalid_input,
    no_such_entity,
    validation,
)
from hostelry.api.iam.role import found_role
from hostelry.domain.managed_policy import ManagedPolicy
from hostelry.domain.role import Role, role_name_of
from hostelry.permissions.document import DocumentKind
from hostelry.permissions.evaluation import AccessDecision, AccessRequest, Policy, decide
from hostelry.permissions.wildcard import (
    MAX_WORK_CHARACTERS,
    Context,
    MatchWork,
    TooMuchMatching,
)

MAX_SIMULATIONS = 10_000
# A decision, and each policy or key that its result names, counts as that many characters.
RESULT_CHARACTERS = 500
TOO_MUCH = (
    f"The simulation compares more than {MAX_WORK_CHARACTERS} characters of policies, actions,"
    " resources and context values; ask for fewer actions or resources in a call, for smaller pages"
    " (MaxItems), or for shorter policies and values."
)
UNSUPPORTED = (
    "ResourcePolicy",
    "ResourceHandlingOption",
    "PolicyExclusionList",
    "OrderedOrganizationPolicyInputList",
)


def simulate_principal_policy(context: CallContext, params: Params) -> Result:
    """SimulatePrincipalPolicy: what the policies of a role would decide."""
    arn = params["PolicySourceArn"]
    name = role_name_of(arn)
    if not name:
        raise invalid_input(
            f"Invalid Entity Arn: {arn} does not clearly define entity type and name."
        )
    role = found_role(context, name).value
    if role.arn != arn:
        raise no_such_entity(f"The role with name {name} cannot be found.")
    policies = policies_of(context, role)
    given = given_policies(params.get("PolicyInputList"), "PolicyInputList")
    keys = {
        "aws:principalarn": (role.arn,),
        "aws:principalaccount": (role.account,),
        **{f"aws:principaltag/{key.lower()}": (value,) for key, value in role.tags.items()},
    }
    boundary = boundary_of(context, role, params)
    return simulated(context, params, [*policies, *given], boundary, keys)


def simulate_custom_policy(context: CallContext, params: Params) -> Result:
    """SimulateCustomPolicy: what the policies given would decide."""
    policies = given_policies(params["PolicyInputList"], "PolicyInputList")
    boundary = given_boundary(params)
    return simulated(context, params, policies, boundary, {})


def simulated(
    call: CallContext,
    params: Params,
    policies: Sequence[Policy],
    boundary: Sequence[Policy] | None,
    keys: Context,
) -> Result:
    """The decision on each action and resource of the request, as a page.

    Raises InvalidInput for more than a call may compare.
    """
    for member in UNSUPPORTED:
        if params.get(member) is not None:
            raise validation(f"{member} is not supported by Hostelry.")
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
    page, members = iam_page(params, [(f"{n:06d}", it) for n, it in enumerate(pairs)])
    for action, _ in page:
        check_action(action)
    requests = [AccessRequest(action=it, resource=on, context=context) for it, on in page]
    try:
        results = decided(call, requests, policies, boundary)
    except TooMuchMatching:
        raise invalid_input(TOO_MUCH) from None
    return {"EvaluationResults": results, **members}


def decided(
    call: CallContext,
    requests: Sequence[AccessRequest],
    policies: Sequence[Policy],
    boundary: Sequence[Policy] | None,
) -> list[Result]:
    """The decision on each request; raises TooMuchMatching when one budget for all is used up."""
    work, results = MatchWork(), []
    for request in requests:
        call.check_time()
        decision = decide(policies, request, boundary, work)
        num_named = 1 + len(decision.matched) + len(decision.missing)
        work.spend(RESULT_CHARACTERS * num_named)
        results.append(described(request, decision))
    return results


def check_action(action: str) -> None:
    """Raise InvalidInput unless it is the name of one action."""
    service, colon, name = action.partition(":")
    if not (service and colon and name) or "*" in action or "?" in action:
        raise invalid_input(f"Invalid Entity Action: {action}")


def policies_of(context: CallContext, role: Role) -> Iterable[Policy]:
    """The policies of a role: its own, then those attached."""
    for name, document in role.inline_policies.items():
        yield policy_of(f"role_{role.name}_{name}", "role", document)
    for arn in role.attached_policies:
        policy = known_policy(context, arn)
        if policy is not None:
            yield managed(policy)


def boundary_of(context: CallContext, role: Role, params: Params) -> Sequence[Policy] | None:
    """The boundary: the one of the request, or the role's own; None without one."""
    given = given_boundary(params)
    if given is not None or role.boundary is None:
        return given
    policy = known_policy(context, role.boundary)
    return [managed(policy)] if policy else []


def given_boundary(params: Params) -> Sequence[Policy] | None:
    """The boundary of the request; None without one."""
    member = "PermissionsBoundaryPolicyInputList"
    return given_policies(params[member], member) if params.get(member) else None


def given_policies(documents: Sequence[str] | None, member: str) -> list[Policy]:
    """Policies that a request brings along; raises InvalidInput for one that is not valid."""
    return [
        policy_of(f"{member}.{number}", "none", document)
        for number, document in enumerate(documents or (), start=1)
    ]


def managed(policy: ManagedPolicy) -> Policy:
    """A managed policy to decide by."""
    kind = "aws-managed" if policy.account == "aws" else "user-managed"
    return policy_of(policy.name, kind, policy.document)


def policy_of(name: str, kind: str, document: str) -> Policy:
    """A policy to decide by."""
    statements = checked_document(document, DocumentKind.IDENTITY)
    return Policy(id=name, type=kind, statements=statements)


def described(request: AccessRequest, decision: AccessDecision) -> Result:
    """A decision in AWS's form; the places of statements in their documents are left out."""
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
