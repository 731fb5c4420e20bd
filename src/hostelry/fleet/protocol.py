"""Protocols of the fleet and its agents."""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from hostelry.base.metrics_page import MetricsPage
from hostelry.domain.copy import CopySpec, CopyStatus, Instance


class RunningInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance whose agent is alive. `address` is ``http://host:port``."""

    id: str
    address: str


class Fleet(Protocol):
    """The instances that run. Idempotent by instance id."""

    async def launch(self, instance: Instance) -> RunningInstance:
        """Start the instance's agent, or return the running agent.

        The new agent adopts copies that outlived the instance's dead agent. Raises CapacityError if
        no machine can hold the instance, TerminalError if the agent cannot start.
        """
        ...

    async def terminate(self, instance_id: str) -> None:
        """Stop the agent and its copies, and remove its folder. Succeeds if it is gone."""
        ...

    async def list(self) -> Sequence[RunningInstance]:
        """Every instance whose agent answers now."""
        ...


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an agent's copies. `version` changes with every change of `copies`."""

    instance_id: str
    version: str
    copies: tuple[CopyStatus, ...]


class CopyPage(msgspec.Struct, frozen=True, kw_only=True):
    """The page for Prometheus of a ready copy, which took `seconds`.

    "up": the copy answered. "down": it answered no valid page. "none": its server has no page.
    """

    copy_id: str
    answer: Literal["up", "down", "none"]
    seconds: float = 0.0
    is_built_in: bool = False
    page: MetricsPage = msgspec.field(default_factory=MetricsPage)


class Agent(Protocol):
    """One instance's agent. It is level-triggered, so that a repeated call changes nothing."""

    async def apply(self, copies: Sequence[CopySpec]) -> None:
        """Run exactly `copies`: start missing copies, and stop all others.

        Returns once the desired copies are recorded on disk, not when they run. Raises
        RetryableError if the agent cannot be reached.
        """
        ...

    async def observe(self, have: str | None = None, timeout_s: float = 0.0) -> Observation:
        """The current state. Waits up to `timeout_s` for a state whose version is not `have`.

        Raises RetryableError if the agent cannot be reached.
        """
        ...

    async def log_tail(self, copy_id: str, max_lines: int = 100) -> str:
        """The last lines that the copy's model server printed, empty if it never started."""
        ...
