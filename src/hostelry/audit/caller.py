"""Callers of records apart from the principals of an account. Pure."""

from hostelry.audit.record import SERVICE, UNKNOWN, WEB_IDENTITY, AuditedCaller


def name_service(account: str, service: str) -> AuditedCaller:
    """The caller of a call that a service of the platform makes for an account."""
    return AuditedCaller(kind=SERVICE, account=account, arn="", principal_id="", invoked_by=service)


def name_unknown(account: str, access_key_id: str) -> AuditedCaller:
    """The caller with keys that are not valid any more."""
    return AuditedCaller(
        kind=UNKNOWN, account=account, arn="", principal_id="", access_key_id=access_key_id
    )


def name_web_identity(account: str, provider: str, audience: str, subject: str) -> AuditedCaller:
    """The holder of a token of an identity provider, which is named by its ARN."""
    return AuditedCaller(
        kind=WEB_IDENTITY,
        account=account,
        arn="",
        principal_id=f"{provider}:{audience}:{subject}",
        user_name=subject,
    )
