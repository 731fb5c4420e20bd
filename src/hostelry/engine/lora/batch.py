"""Which rows of a step belong to which adapters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hostelry.engine.kernels.lora import LoraRun, LoraWeights
from hostelry.engine.lora.shapes import Site


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows of N adapters with equal ranks, `rows_each` each; weights by site."""

    row_start: int
    rows_each: int
    weights: Mapping[Site, LoraWeights]


@dataclass(frozen=True, slots=True)
class LoraBatch:
    """All adapter rows of a step."""

    segments: Sequence[Segment]

    def runs(self, site: Site) -> Sequence[LoraRun]:
        """The updates to add at `site`; segments that do not target it have none."""
        return [
            LoraRun(segment.row_start, segment.rows_each, weights)
            for segment in self.segments
            if (weights := segment.weights.get(site)) is not None
        ]
