"""Service-linked roles, which the service that they are for is the only one to assume."""

import json

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.refusals import invalid_input, no_such_entity
from hostelry.api.iam.role import add_role, described, found_role
from hostelry.base.ids import new_iam_id, new_uuid
from hostelry.domain.role import SERVICE_LINKED_PATH, Role

# The names that AWS gives; every other service's is made of the first part of its name.
NAMES = {
    "sagemaker.application-autoscaling.amazonaws.com": "ApplicationAutoScaling_SageMakerEndpoint",
    "sagemaker.amazonaws.com": "SageMaker",
    "autoscaling.amazonaws.com": "AutoScaling",
}


def create_service_linked_role(context: CallContext, params: Params) -> Result:
    """CreateServiceLinkedRole; raises InvalidInput for a second one of a name."""
    service, suffix = params["AWSServiceName"], params.get("CustomSuffix")
    if not service.endswith(".amazonaws.com"):
        raise invalid_input(f"Service {service} is not a valid AWS service name.")
    base = NAMES.get(service) or service.split(".")[0].replace("-", "_").title().replace("_", "")
    name = f"AWSServiceRoleFor{base}" + (f"_{suffix}" if suffix else "")
    if context.state.roles.get(context.scope.account_wide, name.lower()) is not None:
        raise invalid_input(
            f"Service role name {name} has been taken in this account, please try a different"
            " suffix."
        )
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": "sts:AssumeRole",
    }
    role = Role(
        account=context.scope.account,
        name=name,
        id=new_iam_id("AROA"),
        trust_policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}),
        created_at=context.now,
        path=f"{SERVICE_LINKED_PATH}{service}/",
        description=params.get("Description"),
    )
    return {"Role": described(add_role(context, role))}


def delete_service_linked_role(context: CallContext, params: Params) -> Result:
    """DeleteServiceLinkedRole: the role is gone when the answer comes."""
    stored = found_role(context, params["RoleName"])
    role = stored.value
    if not role.is_service_linked:
        raise invalid_input(f"Role {role.name} is not a service-linked role.")
    context.state.roles.delete(context.scope.account_wide, role.name.lower(), expect=stored.version)
    return {"DeletionTaskId": f"task{role.path}{role.name}/{new_uuid()}"}


def get_service_linked_role_deletion_status(context: CallContext, params: Params) -> Result:
    """GetServiceLinkedRoleDeletionStatus: SUCCEEDED, since no deletion takes time."""
    task = params["DeletionTaskId"]
    parts = task.split("/")
    if not task.startswith(f"task{SERVICE_LINKED_PATH}") or len(parts) != 5:
        raise no_such_entity(f"Deletion Task Id {task} cannot be found.")
    return {"Status": "SUCCEEDED"}
