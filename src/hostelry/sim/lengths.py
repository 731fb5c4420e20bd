"""Numbers of input and output tokens of requests, drawn from published quantiles.

A length is drawn by its quantile function: straight lines, in the logarithm, between the published
points. So the quantiles are those published, whatever the shape between them (the conversation
trace's outputs have two humps).
"""

from dataclasses import dataclass

import numpy as np

from hostelry.sim.trace import IntArray


@dataclass(frozen=True, slots=True)
class Lengths:
    """Points (share of requests, tokens) of a quantile function, from 0.0 to 1.0."""

    points: tuple[tuple[float, float], ...]

    def draw(self, source: np.random.Generator, num: int) -> IntArray:
        """`num` lengths, each at least one token."""
        shares, tokens = zip(*self.points, strict=True)
        logs = np.interp(source.random(num), shares, np.log(tokens))
        return np.maximum(1, np.rint(np.exp(logs))).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLengths:
    """Of a kind of requests: tokens of the prompt, and of the answer."""

    input: Lengths
    output: Lengths


# Source: Azure's LLM inference traces of 2023 (conversation and code; CC-BY 4.0): p5, p50, p75,
# p90, p99 and the largest are the trace's; the points between are set so that the mean is too.
CHAT = RequestLengths(
    input=Lengths(
        (
            (0.0, 20.0), (0.05, 181.0), (0.5, 1020.0), (0.75, 1300.0),
            (0.9, 2734.0), (0.99, 4142.0), (0.997, 4600.0), (1.0, 14050.0),
        )
    ),
    output=Lengths(
        (
            (0.0, 10.0), (0.1, 40.0), (0.5, 129.0), (0.65, 330.0), (0.75, 395.0),
            (0.9, 424.0), (0.99, 601.0), (1.0, 1000.0),
        )
    ),
)  # fmt: skip
CODE = RequestLengths(
    input=Lengths(
        (
            (0.0, 3.0), (0.1, 200.0), (0.5, 1469.0), (0.75, 2900.0),
            (0.9, 5188.0), (0.99, 7300.0), (1.0, 7437.0),
        )
    ),
    output=Lengths(
        (
            (0.0, 2.0), (0.1, 6.0), (0.5, 13.0), (0.75, 23.0),
            (0.9, 55.0), (0.99, 251.0), (0.997, 330.0), (1.0, 900.0),
        )
    ),
)  # fmt: skip
SHORT = RequestLengths(
    input=Lengths(((0.0, 20.0), (0.5, 100.0), (0.9, 220.0), (1.0, 400.0))),
    output=Lengths(((0.0, 8.0), (0.5, 32.0), (0.9, 64.0), (1.0, 128.0))),
)
