"""Protocols of the fleet and its agents. Nothing above fleet/ starts a process."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from hostelry.base.metrics_page import MetricsPage
from hostelry.domain.copy import CopySpec, CopyStatus, Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningInstance:
    """An instance whose agent is alive; `address` is ``http://host:port``."""

    id: str
    address: str


class Fleet(Protocol):
    """The instances that run. Idempotent by instance id."""

    async def launch(self, instance: Instance) -> RunningInstance:
        """Start the instance's agent, or return the one that already runs.

        Copies that outlived a dead agent of the same id are adopted by the new one.
        Raises CapacityError when no machine can hold it, TerminalError when the agent cannot start.
        """
        ...

    async def terminate(self, instance_id: str) -> None:
        """Stop the agent and every copy on it and remove its folder; no error if it is gone."""
        ...

    async def list(self) -> Sequence[RunningInstance]:
        """Every instance whose agent answers now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The state of an agent's copies; `version` changes whenever anything in `copies` does."""

    instance_id: str
    version: str
    copies: tuple[CopyStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPage:
    """The page for Prometheus of a ready copy, asked in `seconds`.

    "up": it answered; "down": it did not, or without a page; "none": its server has no such page.
    """

    copy_id: str
    answer: Literal["up", "down", "none"]
    seconds: float = 0.0
    is_built_in: bool = False
    page: MetricsPage = field(default_factory=MetricsPage)


class Agent(Protocol):
    """One instance's agent, level-triggered: the same call twice is a no-op."""

    async def apply(self, copies: Sequence[CopySpec]) -> None:
        """Run exactly `copies`: start what is missing, stop what is not named.

        Returns when the desired copies are recorded (and survive the agent), not when they run.
        Raises RetryableError when the agent cannot be reached.
        """
        ...

    async def observe(self, have: str | None = None, timeout_s: float = 0.0) -> Observation:
        """The current state; waits up to `timeout_s` for one whose version is not `have`.

        Raises RetryableError when the agent cannot be reached.
        """
        ...

    async def log_tail(self, copy_id: str, max_lines: int = 100) -> str:
        """The last lines the copy's model server printed; empty when it never started."""
        ...
