import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases

import hostelry
from hostelry.home.home import UpConfig, new_credentials
from hostelry.processes.started_by import NOT_READ, service_digest

CONFIG = UpConfig(control_port=4242)
KEYS = new_credentials("1" * 12, "us-east-1")
# The modules that read the configuration in a service's process.
READERS = {
    "control": ("control/main", "control/scaling", "control/app"),
    "gateway": ("services/gateway", "services/gateway_memory", "services/worker_parts"),
    "mirror": ("services/mirror", "services/worker_parts"),
    "jobs": ("services/jobs",),
    "peers": ("services/peers", "processes/gateway_workers"),
    "link": ("services/control_link",),
    "console": ("services/console",),
}


@cases(
    "changes, replaced",
    case("nothing changed", {}, []),
    case("--gateway-workers", {"gateway_workers": 3}, ["gateway", "mirror", "peers"]),
    case("--no-mirror-process", {"mirror_process": False}, ["gateway"]),
    case("--drain-s, which up alone reads", {"drain_s": 9.0}, []),
    case("--pace", {"pace": 60.0}, ["control", "gateway", "mirror"]),
    case("--no-console", {"console_port": 9}, ["gateway", "console"]),
    case(
        "another port",
        {"gateway_port": 9000},
        ["control", "gateway", "mirror", "jobs", "peers", "link", "console"],
    ),
)
def test_who_is_started_by_something_else(changes: dict[str, Any], replaced: list[str]) -> None:
    changed = replace(CONFIG, **changes)
    found = [
        kind
        for kind in NOT_READ
        if service_digest(kind, CONFIG, KEYS) != service_digest(kind, changed, KEYS)
    ]
    assert found == replaced


def test_other_keys_replace_whoever_read_them() -> None:
    others = new_credentials("1" * 12, "us-east-1")
    for kind in NOT_READ:
        assert service_digest(kind, CONFIG, KEYS) != service_digest(kind, CONFIG, others)


@pytest.mark.parametrize("kind", NOT_READ)
def test_what_is_left_out_is_a_field_that_the_service_does_not_read(kind: str) -> None:
    assert NOT_READ[kind] <= {it.name for it in fields(UpConfig)}
    folder = Path(hostelry.__file__).parent
    for module in READERS[kind]:
        text = (folder / f"{module}.py").read_text(encoding="utf-8")
        read = set(re.findall(r"\bconfig\.(\w+)", text))
        assert not read & NOT_READ[kind], module
