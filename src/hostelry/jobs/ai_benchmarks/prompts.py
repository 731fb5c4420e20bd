"""Prompts of a wanted number of tokens, made of words, with reproducible lengths."""

import json
import random
from typing import Any

import msgspec

from hostelry.domain.ai_benchmark_job import AiWorkload

MAX_PROMPTS = 1_000  # different ones. Further requests repeat them.
MAX_PROMPT_WORDS = 4_000_000  # of all prompts of a job together
PROBE_WORDS = (8, 40)
TEXT = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or "
    "had an they which one you were all her she there would their we him been has when who will "
    "no more if out so up said what its about than into them can only other time new some could "
    "these two may first then do any like my now over such our man me even most made after also "
    "did many off before must well back through years much where your way down should because "
    "long each just state those people too mr how little good world make very year still see own "
    "work men day get here old life both between being under three never know same last another "
    "while us might great go come since against right came take used himself few house use place "
    "during high without again home around small however found mrs part school thought went say"
)
WORDS = tuple(TEXT.split())


class TokenScale(msgspec.Struct, frozen=True):
    """How many tokens a prompt of n words has: `base` + n * `per_word`."""

    base: float
    per_word: float

    def count_words(self, num_tokens: float) -> int:
        """The number of words of a prompt with about `num_tokens`. At least one."""
        return max(1, round((num_tokens - self.base) / self.per_word))


def measure_scale(first: int, second: int) -> TokenScale | None:
    """The scale, if prompts of PROBE_WORDS have these tokens. None if the counts do not grow."""
    few, many = PROBE_WORDS
    per_word = (second - first) / (many - few)
    return TokenScale(first - few * per_word, per_word) if per_word > 0 else None


def make_probe(num_words: int) -> str:
    """A prompt to measure the scale with."""
    return _make_text(random.Random(num_words), num_words)


def make_bodies(workload: AiWorkload, scale: TokenScale, *, is_chat: bool) -> list[bytes]:
    """The bodies of the requests. The same workload and scale make the same bodies."""
    draw, num_words = random.Random(workload.seed), 0
    found: list[bytes] = []
    wanted = (workload.request_count or MAX_PROMPTS) + workload.warm_up_count
    while len(found) < min(wanted, MAX_PROMPTS) and (num_words < MAX_PROMPT_WORDS or not found):
        tokens = draw.gauss(workload.prompt_tokens_mean, workload.prompt_tokens_stddev)
        words = scale.count_words(max(1.0, tokens))
        num_words += words
        text = _make_text(draw, words)
        found.append(make_body(text, _draw_answer_tokens(draw, workload), is_chat=is_chat))
    return found


def make_body(text: str, max_tokens: int | None, *, is_chat: bool) -> bytes:
    """A request of a streamed answer. Models without a chat template get the text as a prompt."""
    body: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    if is_chat:
        body["messages"] = [{"role": "user", "content": text}]
    else:
        body["prompt"] = text
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    return json.dumps(body).encode()


def _draw_answer_tokens(draw: random.Random, workload: AiWorkload) -> int | None:
    if workload.output_tokens_mean is None:
        return None
    return max(1, round(draw.gauss(workload.output_tokens_mean, workload.output_tokens_stddev)))


def _make_text(draw: random.Random, num_words: int) -> str:
    return " ".join(draw.choices(WORDS, k=num_words))
