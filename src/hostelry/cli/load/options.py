"""The options of `hostelry load` that describe its requests, and their values in a sweep."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.base.errors import TerminalError
from hostelry.base.printable import plain_number
from hostelry.cli.load.find import MAX_CONCURRENCY, STEP_S, FindOptions
from hostelry.cli.load.question import LoadQuestion
from hostelry.cli.load.sweep import SweptValue

MAX_REQUESTS = 10_000_000  # in one test, which keeps a few numbers per request
CONCURRENCY = 4
DURATION_S = 10.0
QUESTION_MEMBERS = {
    "max-tokens": "max_tokens",
    "prompt-characters": "prompt_characters",
    "body": "file",
}


class LoadOptions(msgspec.Struct, frozen=True):
    """The options of one test. With `limits` it is a search. None: not given."""

    adapters: str | None
    concurrency: int | None
    rate: float | None
    duration: float | None
    question: LoadQuestion
    limits: FindOptions | None

    def __post_init__(self) -> None:
        """Raise TerminalError for too many requests."""
        if self.rate is not None and self.rate * self.duration_s > MAX_REQUESTS:
            raise TerminalError(
                f"{plain_number(self.rate)} requests/s for {plain_number(self.duration_s)} s are "
                f"over {MAX_REQUESTS} requests: give a lower --rate or a shorter --duration"
            )

    @property
    def duration_s(self) -> float:
        """The time of the test, or of one step of a search."""
        return self.duration or (DURATION_S if self.limits is None else STEP_S)

    @property
    def num_connections(self) -> int:
        """The highest number of concurrent requests."""
        return self.concurrency or (CONCURRENCY if self.limits is None else MAX_CONCURRENCY)

    @property
    def as_json(self) -> dict[str, Any]:
        """The options by name, for a result."""
        return {
            "concurrency": self.num_connections,
            "rate": self.rate,
            "duration": self.duration_s,
            "adapters": self.adapters,
            **self.question.options,
            **({} if self.limits is None else self.limits.as_json),
        }

    def replace_values(self, values: Mapping[str, SweptValue]) -> "LoadOptions":
        """These options with a sweep's values. Raises UsageError if they exclude each other."""
        own = {name: values[name] for name in ("concurrency", "rate") if name in values}
        asked: dict[str, Any] = {
            member: values[name] for name, member in QUESTION_MEMBERS.items() if name in values
        }
        changed: dict[str, Any] = {**own, "question": replace(self.question, **asked)}
        return replace(self, **changed)

    def find_given(self, name: str) -> SweptValue | None:
        """The value that the command line gives to an option which a sweep may vary."""
        given: dict[str, Any] = {"concurrency": self.concurrency, "rate": self.rate}
        for flag, member in QUESTION_MEMBERS.items():
            given[flag] = getattr(self.question, member)
        found: SweptValue | None = given.get(name)
        return found
