"""Finds out how a model wants its prompts: as chats or texts, and how many tokens a word has."""

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import HostelryError
from hostelry.domain.ai_benchmark_job import AiWorkload
from hostelry.jobs.ai_benchmarks.llm_load import TIMEOUT_S, TargetCalls
from hostelry.jobs.ai_benchmarks.prompts import (
    PROBE_WORDS,
    TokenScale,
    make_bodies,
    make_body,
    make_probe,
    measure_scale,
)
from hostelry.loadtest.recording import AnswerRecord
from hostelry.loadtest.tally import LoadTally

PROBE_TOKENS = 1


class UnfitModelError(HostelryError):
    """The model cannot be measured. The message is the reason."""


class PromptForm(msgspec.Struct, frozen=True):
    """The number of tokens of words, and whether the model has a chat template."""

    scale: TokenScale
    is_chat: bool

    def make_bodies(self, workload: AiWorkload) -> list[bytes]:
        """The bodies of the requests of a workload."""
        return make_bodies(workload, self.scale, is_chat=self.is_chat)

    def describe(self, bodies: list[bytes]) -> str:
        """A line about the prompts for the job's log stream."""
        return (
            f"{len(bodies)} prompts of {'chats' if self.is_chat else 'texts'} are made:"
            f" {self.scale.per_word:.2f} tokens per word, {self.scale.base:.0f} around them."
        )


async def measure_form(calls: TargetCalls) -> PromptForm:
    """Ask the model two or three short requests. Raises UnfitModelError."""
    is_chat = True
    counts: list[int] = []
    for num_words in PROBE_WORDS:
        tally = await _probe(calls, num_words, is_chat=is_chat)
        if not tally.num_ok and is_chat and not counts:
            is_chat = False
            tally = await _probe(calls, num_words, is_chat=is_chat)
        if not tally.num_ok:
            raise UnfitModelError(f"The model answers no request. {explain_errors(tally)}")
        counts.append(tally.num_prompt_tokens)
    scale = measure_scale(*counts)
    if scale is None:
        raise UnfitModelError(
            "The model's answers do not state their number of prompt tokens (`usage`), so that"
            " prompts of a number of tokens cannot be made."
        )
    return PromptForm(scale, is_chat)


async def _probe(calls: TargetCalls, num_words: int, *, is_chat: bool) -> LoadTally:
    tally = LoadTally()
    answer = AnswerRecord(lambda: tally, monotonic_s(), streams_text=True)
    body = make_body(make_probe(num_words), PROBE_TOKENS, is_chat=is_chat)
    try:
        await calls.send(0, body, answer)
    except TimeoutError:
        answer.fail("timeout", f"no whole answer within {TIMEOUT_S:g} s")
    except OSError as error:
        answer.fail("connection", str(error))
    return tally


def explain_errors(tally: LoadTally) -> str:
    """A sentence about the requests that failed."""
    num_failed = sum(tally.errors.values())
    if not num_failed:
        return "No request was answered before the load ended."
    code, text = next(iter(tally.error_texts.items()))
    first = ": ".join(filter(None, (code, text)))
    return f"{num_failed} of {tally.num_requests} requests failed. The first: {first}"
