"""Hosts that have joined, by the names in their certificates: whose a name is. Pure.

a host joins under a name                          then
------------------------------------------------   ---------------------------------------------
that no host has                                   it is its own
that it has itself: it joins again                 it stays its own
of another that runs, or joined a minute ago       refused
of another that does not run                       it is its own from now on
of another, and who runs is not known yet          refused for now: a new leader knows all soon
"""

import secrets
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from hostelry.base.errors import RetryableError, TerminalError

KIND = "joined_host"
STARTS_WITHIN_S = 60.0
RANDOM_BYTES = 3


class JoinedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host by the name that it joined under."""

    role: str
    host_id: str
    joined_at: float


def check_name(
    name: str,
    holder: JoinedHost | None,
    asked: JoinedHost,
    live: Collection[str] | None,
) -> None:
    """Raise where `asked` may not have the name, which `holder` has.

    `live`: ids of hosts that run; None: not known yet. Raises TerminalError with the way out, or
    RetryableError.
    """
    if holder is None or holder.host_id == asked.host_id:
        return
    is_new = asked.joined_at - holder.joined_at < STARTS_WITHIN_S
    if not is_new and live is None:
        raise RetryableError(f"whether the host {name} runs is not known yet; try again")
    if is_new or holder.host_id in (live or ()):
        state = "has just joined" if is_new else "runs"
        raise TerminalError(
            f"a host of role {holder.role} with the name {name} {state}: give this one another "
            "name, --host-name NAME"
        )


def live_hosts(gateways: Collection[str] | None, leader: Mapping[str, Any]) -> set[str] | None:
    """Ids of the hosts with gateways, and of those in the answer to GET /internal/leader."""
    if gateways is None:
        return None
    return {*gateways, *(host_id_of(it["id"]) for it in leader.get("members", ()))}


def control_id(name: str, host_id: str, pid: int) -> str:
    """The id of one control process, never of two; `host_id` is empty where its host has none."""
    return f"{name}-{pid}-{host_id}{secrets.token_hex(RANDOM_BYTES)}"


def host_id_of(control: str) -> str:
    """The host's id in a `control_id`."""
    return control.rpartition("-")[2][: -2 * RANDOM_BYTES]
