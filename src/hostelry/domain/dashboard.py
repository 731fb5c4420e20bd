"""A CloudWatch dashboard: a name and a body in JSON, which AWS's console would draw."""

from dataclasses import dataclass

from hostelry.domain.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard; its record is named by it, in its account's `everywhere`."""

    scope: Scope
    name: str
    body: str
    modified_at: float

    @property
    def arn(self) -> str:
        """Its ARN, which has no region."""
        return dashboard_arn(self.scope, self.name)


def everywhere(scope: Scope) -> Scope:
    """The scope of an account's dashboards, which are the same in every region."""
    return Scope(scope.account, "global")


def dashboard_arn(scope: Scope, name: str) -> str:
    """The ARN of an account's dashboard."""
    return f"arn:aws:cloudwatch::{scope.account}:dashboard/{name}"
