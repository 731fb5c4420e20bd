"""The state of a request in progress."""

from dataclasses import dataclass, field

from hostelry.engine.lora.versions import AdapterVersion
from hostelry.engine.request import Request
from hostelry.engine.runner.rows import PageRow
from hostelry.engine.sampling.history import TokenHistory


@dataclass(slots=True, kw_only=True)
class RequestState:
    """A request's tokens so far, at most `max_tokens` with the prompt, and what it holds.

    Prompt tokens before number `num_scored` have been scored, where the request asks for that.
    """

    request: Request
    tokens: list[int]
    history: TokenHistory
    max_tokens: int
    version: AdapterVersion | None = None
    page_row: PageRow = field(default_factory=PageRow)
    num_scored: int = 1  # the first has nothing before it

    @property
    def content_id(self) -> str | None:
        """The content id of its adapter; None for the base model."""
        return None if self.version is None else self.version.content_id
