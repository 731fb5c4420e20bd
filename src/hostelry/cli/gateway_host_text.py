"""Hosts with gateways as text. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.cli.status_text import columns, duration

SILENT_S = 5.0  # without a report, of which there is one a second


def gateway_host_lines(hosts: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line a host, with its version and since when it is silent; none where none reported."""
    rows = [
        (
            "gateways",
            host["host_id"],
            host["address"],
            f"version {host['version'] or 'unknown'}",
            f"last seen {duration(host['seen_ago_s'])} ago"
            if host["seen_ago_s"] > SILENT_S
            else "",
        )
        for host in hosts
    ]
    return columns(rows) if rows else []
