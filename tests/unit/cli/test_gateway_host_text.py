"""Hosts with gateways in `hostelry status`."""

from typing import Any

import pytest

from hostelry.cli.status_text import gateway_host_lines


def host(name: str, seen_ago_s: float, version: str = "1.2") -> dict[str, Any]:
    address = f"http://{name}:1"
    return {"host_id": name, "address": address, "version": version, "seen_ago_s": seen_ago_s}


@pytest.mark.parametrize(
    ("hosts", "lines"),
    [
        pytest.param([], [], id="none where none reports itself"),
        pytest.param(
            [host("h-1", 0.8), host("h-22", 200.0, "")],
            [
                "gateways  h-1   http://h-1:1   version 1.2",
                "gateways  h-22  http://h-22:1  version unknown  last seen 3m20s ago",
            ],
            id="one that is silent says since when",
        ),
    ],
)
def test_status_shows_each_host(hosts: list[dict[str, Any]], lines: list[str]) -> None:
    assert gateway_host_lines(hosts) == lines
