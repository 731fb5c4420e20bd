"""Runs a beam search over the engine: each step is a request of one token for each beam.

A step's prompts are the beams so far. Their complete pages are in the engine's prefix cache, so
that a step computes at most a page of each beam again.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from hostelry.containers.lmi.engine.backend import (
    BusyError,
    DeadlineMissedError,
    EngineBackend,
    EngineFailedError,
    GenerationRefusedError,
)
from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.response.generation import Pieces, RunningSequence, take
from hostelry.engine.request import FinishReason, Output, Request
from hostelry.engine.sampling.beams import Beam, BeamParams, BeamSearch


class PromptSearch(msgspec.Struct, kw_only=True):
    """The search of one prompt, and the sequences that get its best beams."""

    sequences: Sequence[RunningSequence]
    search: BeamSearch
    adapter_version: str | None = None
    num_steps: int = 0

    def requests(self) -> list[Request]:
        """The requests of the next step, one for each beam."""
        first = self.sequences[0].request
        sampling = replace(
            first.sampling,
            max_new_tokens=1,
            temperature=0.0,
            ignore_eos=True,
            stop_token_ids=(),
            num_logprobs=self.search.num_candidates,
        )
        deadline_s = first.first_token_deadline_s if not self.num_steps else None
        return [
            replace(
                first,
                id=f"{first.id}/{self.num_steps}.{number}",
                prompt_token_ids=first.prompt_token_ids + beam.token_ids,
                sampling=sampling,
                first_token_deadline_s=deadline_s,
            )
            for number, beam in enumerate(self.search.running)
        ]

    def advance(self, outputs: Sequence[Output]) -> None:
        """Take a step by the outputs of its requests, in their order. Raises BackendError."""
        versions = {output.adapter_content_id for output in outputs}
        if self.num_steps:
            versions.add(self.adapter_version)
        if len(versions) > 1:
            raise BusyError("the adapter was replaced during the beam search; send it again")
        self.adapter_version = versions.pop()
        self.num_steps += 1
        self.search.advance([output.top_logprobs for output in outputs])

    def results(self) -> Iterator[tuple[RunningSequence, Output]]:
        """The tokens of the best beams as the engine's outputs, each with its sequence."""
        for sequence, beam in zip(self.sequences, self.search.complete, strict=False):
            yield from ((sequence, output) for output in self._outputs(sequence, beam))

    def _outputs(self, sequence: RunningSequence, beam: Beam) -> list[Output]:
        num_top = sequence.request.sampling.num_logprobs
        finish = FinishReason.EOS if self.search.ends_by_token(beam) else FinishReason.LENGTH
        return [
            Output(
                request_id=sequence.request.id,
                token_id=step.token.token_id,
                logprob=None if num_top is None else step.token.logprob,
                top_logprobs=step.alternatives[: num_top or 0],
                finish_reason=finish if step is beam else None,
                adapter_content_id=self.adapter_version if step is beam else None,
            )
            for step in beam.steps
            if step.token is not None
        ]


async def run_beams(
    sequences: Sequence[RunningSequence],
    params: BeamParams,
    eos_token_ids: Sequence[int],
    backend: EngineBackend,
    took: Callable[[Pieces], None] | None = None,
) -> AsyncGenerator[Pieces]:
    """All pieces of all sequences at once, when every search has ended. `took` sees them first.

    The sequences of a prompt get its beams, best first. Raises the backend's errors, Refusal for a
    search that needs too much of a step.
    """
    searches = begin(sequences, params, eos_token_ids)
    while live := [each for each in searches if each.search.running]:
        asked = [each.requests() for each in live]
        outputs = await one_token_each([request for group in asked for request in group], backend)
        for each, group in zip(live, asked, strict=True):
            each.advance([outputs[request.id] for request in group])
    pieces = [
        (sequence, await take(sequence, output, backend))
        for each in searches
        for sequence, output in each.results()
    ]
    if took is not None:
        took(pieces)
    yield pieces


def begin(
    sequences: Sequence[RunningSequence], params: BeamParams, eos_token_ids: Sequence[int]
) -> list[PromptSearch]:
    """A search for each prompt. Raises Refusal."""
    searches: list[PromptSearch] = []
    for sequence in sequences:
        if sequence.generated.shares_prompt:
            searches[-1].sequences = [*searches[-1].sequences, sequence]
            continue
        sampling = sequence.request.sampling
        ends = {*sampling.stop_token_ids, *(() if sampling.ignore_eos else eos_token_ids)}
        try:
            search = BeamSearch(params, max_new_tokens=sampling.max_new_tokens, end_token_ids=ends)
        except ValueError as error:
            raise bad_request(str(error), "num_beams") from error
        searches.append(PromptSearch(sequences=[sequence], search=search))
    return searches


async def one_token_each(requests: Sequence[Request], backend: EngineBackend) -> dict[str, Output]:
    """The one token's output of each request, by its id. Raises BackendError."""
    found: dict[str, Output] = {}
    async with aclosing(backend.generate(requests)) as steps:
        async for outputs in steps:
            for output in outputs:
                if output.token_id is None:
                    raise failure(output)
                found[output.request_id] = output
    return found


def failure(output: Output) -> Exception:
    """The error of a step that has no token."""
    if output.finish_reason is FinishReason.DEADLINE:
        return DeadlineMissedError(
            "no first token came within the request's deadline; the server is busy"
        )
    if output.finish_reason is FinishReason.REFUSED:
        return GenerationRefusedError(output.error or "no token may come next")
    return EngineFailedError(output.error or "the engine failed at this request")
