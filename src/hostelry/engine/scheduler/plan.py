"""What one step computes: plain integers, no tokens and no tensors."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Tokens `start` to `start + length` of one request.

    `samples` is set when the chunk reaches the request's last known token, so that its logits give
    the next one.
    """

    request_id: str
    start: int
    length: int
    samples: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One step: chunks in order of arrival, pages given out now, requests sent back to wait."""

    chunks: tuple[Chunk, ...]
    new_pages: tuple[int, ...] = ()
    preempted: tuple[str, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Rows of the step's tensors."""
        return sum(chunk.length for chunk in self.chunks)
