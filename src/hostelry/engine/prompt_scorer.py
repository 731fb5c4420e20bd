"""The requests whose prompts are scored, and the scores from a step's logits.

A step without such requests costs nothing more.
"""

from collections.abc import Sequence

import msgspec
import numpy
import torch
from msgspec.structs import replace
from numpy.typing import NDArray

from hostelry.engine.kernels.batch import Int64
from hostelry.engine.request import Output
from hostelry.engine.request_state import RequestState
from hostelry.engine.runner.rows import SequenceRows
from hostelry.engine.sampling.prompt_scores import score
from hostelry.engine.sampling.results import NOT_FINITE, Sampled

Flags = NDArray[numpy.bool_]


class StepScores(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of a step.

    `sampled_rows` are the rows of the logits that give next tokens, in order of the step.
    `not_finite` are requests that cannot be scored.
    """

    outputs: list[Output]
    sampled_rows: list[int]
    not_finite: frozenset[str]

    def select_sampled(
        self, logits_SV: torch.Tensor, greedy_S: Int64 | None, finite_S: Flags | None
    ) -> tuple[torch.Tensor, Int64 | None, Flags | None]:
        """The logits, greedy tokens and finite flags of the rows that give next tokens."""
        rows = self.sampled_rows
        if greedy_S is None or finite_S is None:
            return logits_SV[rows], None, None
        return logits_SV[rows], greedy_S[rows], finite_S[rows]


class PromptScorer:
    """Keeps the requests whose prompts are not scored to their end."""

    def __init__(self) -> None:
        self._states: dict[str, RequestState] = {}
        self._outputs: list[Output] = []  # of the step being computed

    def add(self, state: RequestState) -> None:
        """Score the request's prompt, if it asks for scores and has a second token."""
        request = state.request
        if request.num_prompt_logprobs is not None and len(request.prompt_token_ids) > 1:
            self._states[request.id] = state

    def discard(self, request_id: str) -> None:
        """Forget a request that ended."""
        self._states.pop(request_id, None)

    def mark_rows(self, ordered: list[SequenceRows]) -> list[SequenceRows] | None:
        """The parts with their rows to score. None without any such row."""
        if not self._states:
            return None
        marked = [self._mark_part(part) for part in ordered]
        return marked if any(part.scored for part in marked) else None

    def _mark_part(self, part: SequenceRows) -> SequenceRows:
        state = self._states.get(part.request_id)
        if state is None:
            return part
        # The row of a token gives the score of the token after it.
        end = min(part.start + len(part.token_ids), len(state.request.prompt_token_ids) - 1)
        first = max(part.start, state.num_scored - 1)
        return replace(part, scored=range(first, max(first, end)))

    def compute_scores(self, logits_SV: torch.Tensor, marked: Sequence[SequenceRows]) -> StepScores:
        """Score the step of `marked` by its logits. `record` then keeps the scores."""
        outputs: list[Output] = []
        sampled: list[int] = []
        not_finite: set[str] = set()
        row = 0
        for part in marked:
            num_scored = len(part.scored)
            if num_scored:
                output = self._score_part(part, logits_SV[row : row + num_scored])
                if output is None:
                    not_finite.add(part.request_id)
                else:
                    outputs.append(output)
            row += num_scored
            if part.samples:
                sampled.append(row)
                row += 1
        return StepScores(outputs=outputs, sampled_rows=sampled, not_finite=frozenset(not_finite))

    def _score_part(self, part: SequenceRows, logits_RV: torch.Tensor) -> Output | None:
        request = self._states[part.request_id].request
        first = part.scored.start + 1
        found = score(
            logits_RV,
            request.prompt_token_ids[first : part.scored.stop + 1],
            start=first,
            num_top=request.num_prompt_logprobs or 0,
        )
        if found is None:
            return None
        return Output(request_id=request.id, token_id=None, prompt_logprobs=found)

    def record(
        self, scores: StepScores, chosen: list[tuple[str, Sampled]]
    ) -> list[tuple[str, Sampled]]:
        """Keep the scores of a step.

        Returns its chosen tokens, and errors for unscorable requests. Kept scores are not computed
        again after a preemption.
        """
        for output in scores.outputs:
            found = output.prompt_logprobs
            assert found is not None, "these outputs have scores"
            state = self._states[output.request_id]
            state.num_scored = found.start + len(found.logprobs)
            if state.num_scored >= len(state.request.prompt_token_ids):
                del self._states[output.request_id]
        self._outputs += scores.outputs
        failed = scores.not_finite
        kept = [it for it in chosen if it[0] not in failed]
        return kept + [(request_id, Sampled(None, error=NOT_FINITE)) for request_id in failed]

    def take_outputs(self) -> list[Output]:
        """The scores kept since the last call."""
        taken, self._outputs = self._outputs, []
        return taken
