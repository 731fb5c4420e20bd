"""The check of roles that are passed to SageMaker.

Source: the text is what CreateModel answers, as reported in awslabs/predictive-maintenance-using-
machine-learning issue 3; Terraform's provider retries on "Could not assume role".
"""

from hostelry.api.context import CallContext, Params
from hostelry.api.iam.execution_role import SAGEMAKER, can_assume
from hostelry.base.errors import validation_error


def check_execution_role(context: CallContext, params: Params) -> None:
    """Raise ValidationException where SageMaker cannot assume the role that a request gives."""
    arn = params.get("ExecutionRoleArn")
    if arn and context.checks_roles and not can_assume(context, SAGEMAKER, arn):
        raise validation_error(
            f"Could not assume role {arn}. Please ensure that the role exists and allows principal"
            f" '{SAGEMAKER}' to assume the role."
        )
