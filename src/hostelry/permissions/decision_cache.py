"""Decisions kept for calls that repeat."""

from hostelry.permissions.authorization import Authorization, Grants, ResourcePolicy, authorize
from hostelry.permissions.evaluation import AccessRequest

MAX_DECISIONS = 10_000


class DecisionCache:
    """Keeps decisions by all values that they depend on, so that none is ever out of date.

    A key has the caller's names, the action, the resource, and the values of those keys of the
    context that policies read. A kept decision is used only for the same policies. A full cache is
    emptied.
    """

    def __init__(self, limit: int = MAX_DECISIONS) -> None:
        self._limit = limit
        self._kept: dict[
            tuple[object, ...], tuple[Grants, ResourcePolicy | None, Authorization]
        ] = {}

    def __len__(self) -> int:
        """The number of kept decisions."""
        return len(self._kept)

    def authorize(
        self,
        grants: Grants,
        who: frozenset[str],
        account: str,
        request: AccessRequest,
        resource: ResourcePolicy | None = None,
    ) -> Authorization:
        """`authorization.authorize`, from the cache if possible. Raises TooMuchMatching."""
        context = request.context
        values = [tuple(context.get(it, ())) for it in grants.keys]
        if resource is not None and resource.policy is not None:
            keys = (it for statement in resource.policy.statements for it in statement.keys)
            values += [tuple(context.get(it, ())) for it in keys]
        key = (who, account, request.action, request.resource, *values)
        kept = self._kept.get(key)
        if kept is not None and _is_same(kept[0], grants) and _is_same(kept[1], resource):
            return kept[2]
        decision = authorize(grants, who, account, request, resource)
        if len(self._kept) >= self._limit:
            self._kept.clear()
        self._kept[key] = grants, resource, decision
        return decision


def _is_same(kept: object, given: object) -> bool:
    return kept is given or kept == given
