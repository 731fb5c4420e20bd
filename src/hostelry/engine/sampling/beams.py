"""Several sequences of one request: independent samples, or a beam search. Without tensors."""

import math
from collections.abc import Collection, Sequence
from math import fsum
from typing import Literal

import msgspec
from msgspec.structs import replace

from hostelry.engine.request import MAX_LOGPROBS, Request, TokenLogprob
from hostelry.engine.sampling.draw import derive_seed


def fan_out(request: Request, num_sequences: int) -> list[Request]:
    """`num_sequences` requests, one for each sequence.

    The first is `request` itself. The others have ids and seeds derived from it, so that the same
    seed gives the same sequences, and a smaller number gives the first of these. The first alone
    scores the prompt. Raises ValueError for fewer than one.
    """
    if num_sequences < 1:
        raise ValueError(f"{num_sequences} sequences of request {request.id}; at least 1")
    seed = request.sampling.seed
    others = [
        replace(
            request,
            id=f"{request.id}/{number}",
            num_prompt_logprobs=None,
            sampling=replace(
                request.sampling, seed=None if seed is None else derive_seed(seed, number)
            ),
        )
        for number in range(1, num_sequences)
    ]
    return [request, *others]


def best(logprobs: Sequence[Sequence[float]], count: int) -> list[int]:
    """The numbers of the `count` sequences whose tokens have the largest sum of logprobs.

    Likeliest first. Of equal sequences the smaller number comes first.
    """
    sums = [fsum(each) for each in logprobs]
    return sorted(range(len(sums)), key=lambda number: (-sums[number], number))[:count]


# Beam search over the likeliest next tokens of each beam, without a model. Step by step it equals
# transformers 5 (`generate` with `num_beams`, without sampling):
#
#     1. the candidates are the likeliest continuations of all beams, by the sum of their logprobs:
#        (1 + end tokens) for each beam, at least two, so that enough of them continue
#     2. a candidate is complete when its token is an end token, or its last
#     3. the best `num_beams` that are not complete continue
#     4. complete candidates among the best `num_beams` are kept if they are among the best
#        `num_beams` ever kept, by sum / length ** length_penalty. The length is of generated tokens
#     5. the search ends when no candidate continues. Once `num_beams` are kept, it also ends if
#        `early_stopping` is true, or if the best beam, scored at its present length, does not
#        exceed the worst kept one. With "never" a positive penalty scores it at the greatest length


EarlyStopping = bool | Literal["never"]


class BeamParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a search, with transformers' names and meanings."""

    num_beams: int
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False


class Beam(msgspec.Struct, frozen=True):
    """A sequence: the sum of its logprobs, its last token, and the beam before that."""

    logprob: float = 0.0
    token: TokenLogprob | None = None
    alternatives: tuple[TokenLogprob, ...] = ()
    before: "Beam | None" = None

    @property
    def steps(self) -> list["Beam"]:
        """The beams with one token, two, and so on, up to this one."""
        found: list[Beam] = []
        beam: Beam | None = self
        while beam is not None and beam.token is not None:
            found.append(beam)
            beam = beam.before
        return found[::-1]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The generated tokens."""
        return tuple(step.token.token_id for step in self.steps if step.token is not None)


class BeamSearch:
    """One search: ask for the likeliest tokens after each of `running`, then `advance`.

    Raises ValueError for fewer than one beam or token, and if one step would need more alternatives
    than the engine reports.
    """

    def __init__(
        self, params: BeamParams, *, max_new_tokens: int, end_token_ids: Collection[int]
    ) -> None:
        if params.num_beams < 1 or max_new_tokens < 1:
            raise ValueError(
                f"num_beams is {params.num_beams} and max_new_tokens {max_new_tokens}; both must "
                "be at least 1"
            )
        self.num_candidates = max(2, 1 + len(end_token_ids)) * params.num_beams
        if self.num_candidates > MAX_LOGPROBS:
            raise ValueError(
                f"{params.num_beams} beams with {len(end_token_ids)} end tokens need "
                f"{self.num_candidates} alternatives a step; at most {MAX_LOGPROBS}: ask for "
                "fewer beams or stop_token_ids"
            )
        self.running = [Beam()]
        self._params = params
        self._max_new_tokens = max_new_tokens
        self._ends = frozenset(end_token_ids)
        self._num_tokens = 0
        self._complete: list[tuple[float, Beam]] = []  # best first

    @property
    def complete(self) -> list[Beam]:
        """The best complete sequences so far, best first."""
        return [beam for _, beam in self._complete]

    def advance(self, likeliest: Sequence[Sequence[TokenLogprob]]) -> None:
        """Take a step by the `num_candidates` likeliest tokens after each running beam.

        `running` is empty once the search has ended.
        """
        candidates = [
            Beam(beam.logprob + token.logprob, token, tuple(tokens), beam)
            for beam, tokens in zip(self.running, likeliest, strict=True)
            for token in tokens
        ]
        candidates.sort(key=_get_logprob)
        del candidates[self.num_candidates :]
        self._num_tokens += 1
        num_beams = self._params.num_beams
        self.running = [beam for beam in candidates if not self._is_complete(beam)][:num_beams]
        self._keep([beam for beam in candidates[:num_beams] if self._is_complete(beam)])
        if self.running and not self._may_improve():
            self.running = []

    def ends_by_token(self, beam: Beam) -> bool:
        """Whether the beam's last token is an end token."""
        return beam.token is not None and beam.token.token_id in self._ends

    def _is_complete(self, beam: Beam) -> bool:
        return self._num_tokens >= self._max_new_tokens or self.ends_by_token(beam)

    def _keep(self, beams: Sequence[Beam]) -> None:
        self._complete += [(self._score(beam.logprob, self._num_tokens), beam) for beam in beams]
        self._complete.sort(key=_get_score)
        del self._complete[self._params.num_beams :]

    def _may_improve(self) -> bool:
        """True if a running beam can still become one of the kept beams."""
        params = self._params
        if len(self._complete) < params.num_beams:
            return True
        if params.early_stopping is True:
            return False
        is_longest = params.early_stopping == "never" and params.length_penalty > 0
        length = self._max_new_tokens if is_longest else self._num_tokens
        return self._score(self.running[0].logprob, length) > self._complete[-1][0]

    def _score(self, logprob: float, length: int) -> float:
        return logprob / math.pow(length, self._params.length_penalty)


def _get_logprob(beam: Beam) -> float:
    return -beam.logprob


def _get_score(kept: tuple[float, Beam]) -> float:
    return -kept[0]
