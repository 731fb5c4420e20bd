"""A platform whose home has no byte left: a real small filesystem that is filled completely.

Needs the right to mount a filesystem. Without it, unit tests still simulate these faults.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.drill import (
    COMPONENT,
    ENDPOINT,
    create_component,
    create_endpoint,
    wait_ready,
    write_image_rule,
)
from tests.integration.platform import Platform

from hostelry_lab.context import drill_context
from hostelry_lab.disk_drill import disk_full
from hostelry_lab.observer import PlatformObserver

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(tmp_path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no filesystem can be mounted here: {done.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_full_disk_stops_nothing_that_serves_and_loses_nothing_acknowledged(
    small_disk: Path,
) -> None:
    root = small_disk / "home"
    write_image_rule(root)
    with Platform(root) as platform:
        platform.may_log_tracebacks = True  # of writes that the disk refuses
        create_endpoint(platform)
        create_component(platform, COMPONENT, copies=2)
        wait_ready(platform, COMPONENT, copies=2)
        observer = PlatformObserver(
            home=platform.home, config=platform.config, credentials=platform.credentials
        )
        with drill_context(observer, ENDPOINT, COMPONENT, 4, lambda _: None) as context:
            outcome = disk_full(context)
        assert outcome.not_run is None
        assert not outcome.missed, outcome
        assert not outcome.lost, outcome
        assert outcome.served is not None
        assert outcome.served.errors == {}
        assert "the disk is full" in str(outcome.details["refusal"])
        assert "No record was changed or removed" in platform.audit("verify")
        wait_ready(platform, COMPONENT, copies=2)
