"""Log-probabilities as JSON values: OpenAI's two forms, and vLLM's of a prompt's tokens."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hostelry.containers.lmi.response.generated import GeneratedSequence, Piece, ScoredToken
from hostelry.engine.request import TokenLogprob

TokenText = Callable[[int], str]


def scored_piece(piece: Piece) -> ScoredToken:
    """A generated token, as one of a prompt."""
    return ScoredToken(token_id=piece.token_id or 0, logprob=piece.logprob, top=piece.top_logprobs)


def completion_logprobs(
    tokens: Sequence[ScoredToken], offsets: Sequence[int], num_top: int, token_text: TokenText
) -> dict[str, Any]:
    """OpenAI's form of a completion; each token is among its own alternatives.

    `offsets` are where the tokens' texts begin in the text.
    """
    return {
        "tokens": [token_text(it.token_id) for it in tokens],
        "token_logprobs": [it.logprob for it in tokens],
        "top_logprobs": [_alternatives(it, num_top, token_text) for it in tokens],
        "text_offset": list(offsets),
    }


def _alternatives(
    token: ScoredToken, num_top: int, token_text: TokenText
) -> dict[str, float] | None:
    """Texts and logprobs, likeliest first; of tokens with one text the likeliest."""
    if token.logprob is None:
        return None
    found: dict[str, float] = {}
    for each in token.top[:num_top]:
        found.setdefault(token_text(each.token_id), each.logprob)
    found.setdefault(token_text(token.token_id), token.logprob)
    return found


def chat_logprobs(
    tokens: Iterable[ScoredToken], num_top: int, token_text: TokenText
) -> list[dict[str, Any]]:
    """OpenAI's form of a chat's `content`."""

    def entry(token_id: int, logprob: float | None) -> dict[str, Any]:
        text = token_text(token_id)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    return [
        {
            **entry(token.token_id, token.logprob),
            "top_logprobs": [entry(top.token_id, top.logprob) for top in token.top[:num_top]],
        }
        for token in tokens
    ]


def prompt_logprobs(
    sequence: GeneratedSequence, num_top: int, token_text: TokenText
) -> list[dict[str, Any] | None]:
    """Each token of the prompt in vLLM's form: its own score and the likeliest, by token id."""
    return [_ranked(token, num_top, token_text) for token in sequence.scored_prompt]


def _ranked(token: ScoredToken, num_top: int, token_text: TokenText) -> dict[str, Any] | None:
    if token.logprob is None:
        return None
    own = TokenLogprob(token_id=token.token_id, logprob=token.logprob)
    ranked = [(token.rank, own), *enumerate(token.top[:num_top], start=1)]
    found: dict[str, Any] = {}
    for rank, each in ranked:
        value = {
            "logprob": each.logprob,
            "rank": rank,
            "decoded_token": token_text(each.token_id),
        }
        found.setdefault(str(each.token_id), value)
    return found
