"""Acts of operators as records of the trail, and read back from them. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.audit.record import (
    ACT,
    MANAGEMENT,
    OWN_SOURCE,
    ROOT,
    VERSION,
    TrailEvent,
    UserIdentity,
    format_time,
)
from hostelry.base.json import decode

ACCEPTED = ("accepted", "begun")


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's act. `at` is in seconds since the epoch.

    `who` is a user of the command line or a session of the console. `endpoint` is empty if the act
    is not about an endpoint. `outcome` is "accepted" or the reason why the act was not done.
    """

    at: float
    who: str
    act: str
    target: str
    outcome: str
    endpoint: str = ""
    account: str = ""
    region: str = ""


class _ActParameters(msgspec.Struct):
    """Parameters of an act's record."""

    target: str = ""
    endpoint: str = ""
    account: str = ""
    region: str = ""


class _ActIdentity(msgspec.Struct, rename="camel"):
    """The caller of an act's record."""

    user_name: str = ""


class _ActData(msgspec.Struct):
    """Further data of an act's record."""

    outcome: str = ""


class _ActEvent(msgspec.Struct, rename="camel"):
    """The members of an act's record from which its entry is built."""

    event_type: str
    event_name: str
    user_identity: _ActIdentity
    request_parameters: _ActParameters
    additional_event_data: _ActData


def build_act_event(entry: AuditEntry, owner: tuple[str, str], event_id: str) -> TrailEvent:
    """The record of an act. `owner` are account and region of acts that name none."""
    account, region = entry.account or owner[0], entry.region or owner[1]
    given = {
        "target": entry.target,
        "endpoint": entry.endpoint,
        "account": entry.account,
        "region": entry.region,
    }
    parameters: Mapping[str, Any] = {name: it for name, it in given.items() if it}
    return TrailEvent(
        event_version=VERSION,
        user_identity=UserIdentity(
            type=ROOT,
            principal_id=owner[0],
            arn=f"arn:aws:iam::{owner[0]}:root",
            account_id=owner[0],
            user_name=entry.who,
        ),
        event_time=format_time(int(entry.at)),
        event_source=OWN_SOURCE,
        event_name=entry.act,
        aws_region=region,
        source_ip_address=OWN_SOURCE,
        user_agent=OWN_SOURCE,
        error_code="" if entry.outcome in ACCEPTED else "ActRefused",
        error_message="" if entry.outcome in ACCEPTED else entry.outcome,
        request_parameters=parameters,
        response_elements=None,
        additional_event_data={"outcome": entry.outcome},
        request_id=event_id,
        event_id=event_id,
        read_only=False,
        event_type=ACT,
        management_event=True,
        recipient_account_id=account,
        event_category=MANAGEMENT,
    )


def read_act(event: bytes, at: float) -> AuditEntry | None:
    """The act of a record, or None if it is the record of something else."""
    try:
        found = decode(event, _ActEvent)
    except msgspec.MsgspecError:
        return None
    if found.event_type != ACT:
        return None
    given = found.request_parameters
    return AuditEntry(
        at=at,
        who=found.user_identity.user_name,
        act=found.event_name,
        target=given.target,
        outcome=found.additional_event_data.outcome,
        endpoint=given.endpoint,
        account=given.account,
        region=given.region,
    )
