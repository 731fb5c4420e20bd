"""A trace: requests in the order of their arrival, in blocks that need not all be there at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

BLOCK_ROWS = 65_536
BEGINS_AT = 1_767_571_200.0  # Monday, 2026-01-05 00:00 UTC: where a trace has no date
NO_SESSION = -1
ONLY_MODEL = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some requests: columns of one length, in order of arrival.

    `at_s` is seconds since the trace's beginning, `model` a position in the trace's `models`,
    `session` a number that requests of one session share, `NO_SESSION` for none.
    """

    at_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    model: IntArray
    session: IntArray

    def __len__(self) -> int:
        return len(self.at_s)


@dataclass(slots=True, kw_only=True)
class Trace:
    """Arrivals by blocks.

    Args:
        name: the name in reports.
        blocks: the requests, as an iterator that can be walked once, or a sequence.
        models: names that blocks refer to. Grows while a file is read.
        begins_at: the wall time, in seconds since the epoch, of second 0.
        lasts_s: how long it lasts. None: until the last arrival.
        steps_s: when the rate truly rises, if that is known.
    """

    name: str
    blocks: Iterator[Block] | Sequence[Block]
    models: list[str] = field(default_factory=lambda: [ONLY_MODEL])
    begins_at: float = BEGINS_AT
    lasts_s: float | None = None
    steps_s: tuple[float, ...] = ()


def build_block(
    at_s: FloatArray,
    input_tokens: IntArray,
    output_tokens: IntArray,
    model: IntArray | None = None,
    session: IntArray | None = None,
) -> Block:
    """Build a block in the order of arrival. Without `model` all requests are for the first one."""
    order = np.argsort(at_s, kind="stable")
    zeros = np.zeros(len(at_s), dtype=np.int64)
    sessions = zeros + NO_SESSION if session is None else session
    return Block(
        at_s=np.asarray(at_s, dtype=np.float64)[order],
        input_tokens=np.asarray(input_tokens, dtype=np.int64)[order],
        output_tokens=np.asarray(output_tokens, dtype=np.int64)[order],
        model=(zeros if model is None else np.asarray(model, dtype=np.int64))[order],
        session=np.asarray(sessions, dtype=np.int64)[order],
    )
