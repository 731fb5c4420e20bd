"""Several real control processes over one PostgreSQL. All of them see the same local agents."""

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from tests.integration.control_rig import ControlUnderTest

from hostelry.home.home import save_credentials


@dataclass(frozen=True)
class Controls:
    """Homes of one cluster, copied from the first home: keys, images, and instance folders."""

    all: list[ControlUnderTest]

    def leader_of(self, asked: ControlUnderTest) -> dict[str, Any]:
        """The answer to GET /internal/leader, or empty."""
        try:
            answer = httpx.get(
                f"{asked.url}/internal/leader", headers=asked.headers, timeout=5, verify=False
            )
        except httpx.TransportError:
            return {}
        found: dict[str, Any] = answer.json()
        return found

    def knows_all(self, asked: ControlUnderTest) -> bool:
        return len(self.leader_of(asked).get("controls", ())) == len(self.all)

    def is_led_by(self, leader: ControlUnderTest, asked: ControlUnderTest) -> bool:
        return bool(self.leader_of(asked).get("leader") == leader.url)

    def leader(self, *others: ControlUnderTest) -> ControlUnderTest:
        """Wait until a control leads and is ready, but not one in `others`. Returns the leader."""
        found: list[ControlUnderTest] = []

        def is_there() -> bool:
            asked = [it for it in self.all if it not in others]
            ready = [it for it in asked if it.health().get("ready")]
            found[:] = ready
            return bool(ready)

        self.all[0].until(is_there, "a control leads")
        assert len(found) == 1, "two controls lead"
        return found[0]


@contextlib.contextmanager
def controls(root: Path, store_url: str, how_many: int) -> Iterator[Controls]:
    """Running controls. One of them leads."""
    made = [ControlUnderTest(root / str(it), store_url=store_url) for it in range(how_many)]
    first = made[0]
    for other in made[1:]:
        other.credentials = first.credentials
        save_credentials(other.home, first.credentials)
        other.home.instances.rmdir()
        other.home.instances.symlink_to(first.home.instances)
    try:
        for control in made:
            control.begin()
        found = Controls(made)
        found.leader()
        for control in made:
            control.until(partial(found.knows_all, control), "it knows all controls")
        yield found
    finally:
        for control in made:
            if control.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    control.process.send_signal(signal.SIGCONT)
        for control in reversed(made):
            control.stop_everything()
