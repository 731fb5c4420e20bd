"""The check of roles that are passed to SageMaker.

Source: the text is what CreateModel answers, as reported in awslabs/predictive-maintenance-using-
machine-learning issue 3; Terraform's provider retries on "Could not assume role".
"""

from hostelry.api.context import CallContext, Params
from hostelry.api.iam.execution_role import SAGEMAKER, lets_service
from hostelry.base.errors import validation_error
from hostelry.domain.role import role_name_of


def check_execution_role(context: CallContext, params: Params) -> None:
    """Raise ValidationException where SageMaker cannot assume the role that a request gives."""
    arn = params.get("ExecutionRoleArn")
    if not arn or not context.checks_roles:
        return
    stored = context.state.roles.get(context.scope.account_wide, role_name_of(arn).lower())
    if stored is None or stored.value.arn != arn or not lets_service(stored.value, SAGEMAKER):
        raise validation_error(
            f"Could not assume role {arn}. Please ensure that the role exists and allows principal"
            f" '{SAGEMAKER}' to assume the role."
        )
