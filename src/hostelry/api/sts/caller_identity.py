"""GetCallerIdentity.

`sagemaker.get_execution_role()` needs an assumed-role identity, whose role it then looks up.
"""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.execution_role import ROLE_ID
from hostelry.domain.role import assumed_role_arn

SESSION_NAME = "hostelry"


def get_caller_identity(context: CallContext, _: Params) -> Result:
    """GetCallerIdentity: who has no session in another role acts in the execution role."""
    account, session = context.scope.account, context.session
    if session is None or not session.role_name:
        role_id, role_name, session_name = ROLE_ID, context.role_name, SESSION_NAME
    else:
        role_id, role_name = session.role_id, session.role_name
        session_name = session.session_name
    return {
        "UserId": f"{role_id}:{session_name}",
        "Account": account,
        "Arn": assumed_role_arn(account, role_name, session_name),
    }
