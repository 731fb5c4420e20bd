"""Text of one running sequence: token outputs in, pieces of text out."""

from collections.abc import Sequence

from hostelry.containers.lmi.request.invocation import TextOptions
from hostelry.containers.lmi.response.generated import Piece
from hostelry.containers.lmi.text_codec import TextCodec
from hostelry.engine.request import FinishReason, Output
from hostelry.engine.text import IncrementalDetokenizer, StopStrings


class SequenceText:
    """Detokenizes one sequence and detects its stop strings."""

    def __init__(
        self, codec: TextCodec, prompt_token_ids: Sequence[int], texts: TextOptions
    ) -> None:
        def decode(token_ids: list[int]) -> str:
            return codec.decode(token_ids, skip_special_tokens=texts.skip_special_tokens)

        self._detokenizer = IncrementalDetokenizer(decode, prompt_token_ids)
        self._stops = StopStrings(texts.stop, include_stop=texts.include_stop)
        self._include_stop = texts.include_stop

    def push(self, output: Output) -> Piece:
        """The piece of `output`; its finish reason is STOP when a stop string is complete."""
        finish = output.finish_reason
        found = self._stops.feed(self._new_text(output))
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

    def _new_text(self, output: Output) -> str:
        """The text that no later token can change; a token that only ends the sequence has none."""
        ends_only = output.finish_reason is FinishReason.EOS and not self._include_stop
        text = ""
        if output.token_id is not None and not ends_only:
            text = self._detokenizer.push(output.token_id)
        return text + (self._detokenizer.finish() if output.finish_reason else "")
