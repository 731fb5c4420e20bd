"""Sampling of a request that does not say: vLLM's defaults, or a model's own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """Sampling of requests that give no value.

    `max_new_tokens` is for chats, which else may fill the model's length; `most_new_tokens` bounds
    every request, whatever it gives (None: no bound).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_new_tokens: int | None = None
    most_new_tokens: int | None = None

    def bounded(self, max_new_tokens: int | None) -> int | None:
        """The smaller of `max_new_tokens` and the bound; None without either."""
        given = [it for it in (max_new_tokens, self.most_new_tokens) if it is not None]
        return min(given, default=None)


NEUTRAL = SamplingDefaults()
