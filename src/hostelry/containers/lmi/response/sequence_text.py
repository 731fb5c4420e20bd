"""Text of one running sequence: token outputs in, pieces of text out."""

from collections.abc import Sequence

from hostelry.containers.lmi.request.invocation import Repetition, TextOptions
from hostelry.containers.lmi.response.generated import Piece
from hostelry.containers.lmi.text_codec import TextCodec
from hostelry.engine.request import FinishReason, Output
from hostelry.engine.text import IncrementalDetokenizer, StopResult, StopStrings


class SequenceText:
    """Detokenizes one sequence and detects its stop strings."""

    def __init__(
        self, codec: TextCodec, prompt_token_ids: Sequence[int], texts: TextOptions
    ) -> None:
        def decode(token_ids: list[int]) -> str:
            if not texts.shown_tokens or not texts.skip_special_tokens:
                return codec.decode(token_ids, skip_special_tokens=texts.skip_special_tokens)
            shown = [it for it in token_ids if it in texts.shown_tokens or not codec.is_special(it)]
            return codec.decode(shown, skip_special_tokens=False)

        self._detokenizer = IncrementalDetokenizer(decode, prompt_token_ids)
        self._stops = StopStrings(texts.stop, include_stop=texts.include_stop)
        self._include_stop = texts.include_stop
        self._min_tokens = texts.min_tokens
        self._repetition = texts.repetition
        self._token_ids: list[int] = []
        self._num_tokens = 0

    def push(self, output: Output) -> Piece:
        """The piece of `output`; its finish reason is STOP when a stop string is complete."""
        finish = output.finish_reason
        if finish is None and self._is_repeated(output.token_id):
            finish = FinishReason.REPETITION
        found = self._found(self._new_text(output, finish))
        text = found.text
        if found.stop is not None:
            finish = FinishReason.STOP
        elif finish:
            text += self._stops.flush()
        return Piece(
            token_id=output.token_id,
            text=text,
            logprob=output.logprob,
            top_logprobs=output.top_logprobs,
            finish_reason=finish,
        )

    def _found(self, text: str) -> StopResult:
        """The text that may be shown; stop strings count from the fewest tokens on."""
        self._num_tokens += 1
        if self._num_tokens > self._min_tokens:
            return self._stops.feed(text)
        return StopResult(self._stops.passed(text))

    def _is_repeated(self, token_id: int | None) -> bool:
        """Whether the answer ends, with this token, in the pattern that ends it."""
        if self._repetition is None or token_id is None:
            return False
        self._token_ids.append(token_id)
        return len(self._token_ids) >= self._min_tokens and repeats(
            self._token_ids, self._repetition
        )

    def _new_text(self, output: Output, finish: FinishReason | None) -> str:
        """The text that no later token can change; a token that only ends the sequence has none."""
        ends_only = output.finish_reason is FinishReason.EOS and not self._include_stop
        text = ""
        if output.token_id is not None and not ends_only:
            text = self._detokenizer.push(output.token_id)
        return text + (self._detokenizer.finish() if finish else "")


def repeats(token_ids: Sequence[int], by: Repetition) -> bool:
    """Whether `token_ids` end with so many equal patterns in a row."""
    end = len(token_ids)
    for size in range(by.smallest, by.largest + 1):
        first = end - size * by.count
        if first < 0:
            return False
        is_likely = token_ids[-1] == token_ids[-1 - size]
        if is_likely and token_ids[first : end - size] == token_ids[first + size :]:
            return True
    return False
