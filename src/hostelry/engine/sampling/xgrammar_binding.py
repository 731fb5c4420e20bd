"""Binding of the xgrammar library: imported on first use, without transformers.

xgrammar imports transformers for classes that only its converter of transformers' tokenizers and
its adapter to `generate` need. Neither is used here, so empty stand-ins replace them during the
import, unless the real module is loaded already. A compiling process has no torch either.
Source: xgrammar, arXiv:2411.15100.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from hostelry.base.json import decode
from hostelry.engine.request import Structure
from hostelry.engine.sampling.grammar import GrammarError
from hostelry.engine.sampling.json_schema import MAX_WHITESPACE, find_patterns, find_schemas

# Tokens that would write half of a UTF-16 surrogate pair, which no text has.
#
# In UTF-8 these are the bytes ED A0 to ED BF and one more. xgrammar takes them for a character of a
# JSON text, but decoders replace each byte, so that a string grows beyond the length it may have.


_LEAD = 0xED
_TRAILS = range(0xA0, 0xC0)


class SurrogateTokens(msgspec.Struct, frozen=True):
    """Tokens that end in the first byte, and those that begin with a second that is wrong."""

    ending: tuple[int, ...]
    beginning: tuple[int, ...]


def find_surrogate_tokens(texts: Sequence[bytes]) -> SurrogateTokens:
    """The tokens among `texts`, the bytes of each token by its id."""
    return SurrogateTokens(
        tuple(number for number, text in enumerate(texts) if text[-1:] == bytes((_LEAD,))),
        tuple(number for number, text in enumerate(texts) if text and text[0] in _TRAILS),
    )


class SurrogateMask:
    """Forbids the second byte after the first. A mask has `num_words` words."""

    def __init__(self, tokens: SurrogateTokens, num_words: int) -> None:
        self._ending = frozenset(tokens.ending)
        allowed_W = np.full(num_words, 0xFFFFFFFF, np.uint32)
        for token_id in tokens.beginning:
            allowed_W[token_id // 32] &= np.uint32(0xFFFFFFFF ^ (1 << token_id % 32))
        self._allowed_W = allowed_W.view(np.int32)

    def apply(self, last_token: int | None, allowed_W: npt.NDArray[np.int32]) -> None:
        """Take the wrong tokens out of `allowed_W` if `last_token` is a first byte."""
        if last_token in self._ending:
            allowed_W &= self._allowed_W


_STOOD_IN = ("transformers", "torch")
# Otherwise tvm_ffi compiles a bridge to old torch versions on import. Arrays are numpy here.
_NO_BRIDGE = "TVM_FFI_DISABLE_TORCH_C_DLPACK"

_WALKS = 3
_WALK_TOKENS = 40
_SLOWEST_STEP_S = 0.03

_NO_TEXT = b"\xff"  # never part of a text
_PRINTED = (*range(33, 127), *range(161, 173), *range(174, 256))
# GPT-2's letters: of a byte that prints as itself that one, of the others those from 256 on.
BYTE_LETTERS = {
    **{byte: chr(byte) for byte in _PRINTED},
    **{
        byte: chr(256 + place)
        for place, byte in enumerate(it for it in range(256) if it not in _PRINTED)
    },
}

MISSING = "structured output needs the xgrammar library: pip install hostelry[structured]"


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """A model's tokens in its tokenizer's form.

    Tokens without text are empty. `kind` is the encoding of text in `tokens`: "byte_level" (GPT-2's
    letters for bytes), "byte_fallback" (SentencePiece's) or "raw". `added` are tokens written as
    plain text. A structure names the `control` tokens by their id only.
    """

    tokens: tuple[str, ...]
    kind: str
    added: tuple[int, ...] = ()
    control: tuple[int, ...] = ()
    adds_prefix_space: bool
    end_token_ids: tuple[int, ...]


class _StandIn(ModuleType):
    """A module in which every name is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *args, **named: None})


def load_xgrammar() -> Any:
    """The xgrammar module. Raises GrammarError if it is not installed."""
    if sys.modules.get("xgrammar") is not None:
        return sys.modules["xgrammar"]
    os.environ.setdefault(_NO_BRIDGE, "1")
    with _stand_ins():
        try:
            return importlib.import_module("xgrammar")
        except ImportError as error:
            raise GrammarError(f"{MISSING} ({error})") from error


def check_installed() -> None:
    """Raise GrammarError, naming the package, if xgrammar is missing. Imports nothing."""
    if sys.modules.get("xgrammar") is None and importlib.util.find_spec("xgrammar") is None:
        raise GrammarError(MISSING)


@contextmanager
def _stand_ins() -> Iterator[None]:
    absent = [name for name in _STOOD_IN if name not in sys.modules]
    sys.modules.update({name: _StandIn(name) for name in absent})
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


class Compiler:
    """Compiles structures for one vocabulary, in the calling thread, without a time limit."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._xgrammar = load_xgrammar()
        self._tokenizer = build_tokenizer_info(vocabulary)
        self._compiler = self._xgrammar.GrammarCompiler(
            self._tokenizer, max_threads=1, cache_enabled=False
        )

    def tokenizer_json(self) -> str:
        """The vocabulary for `read_tokenizer`."""
        tokens = find_surrogate_tokens(self._tokenizer.decoded_vocab)
        encode_text = _WrittenTokenizer(str(self._tokenizer.serialize_json()), tokens)
        return msgspec.json.encode(encode_text).decode()

    def compile(self, structure: Structure) -> str:
        """The compiled structure as JSON. Raises GrammarError with the library's reason."""
        try:
            compiled = self._compile_kind(structure)
        except (RuntimeError, ValueError) as error:
            raise GrammarError(_shorten_reason(str(error))) from error
        for walk in range(1, _WALKS + 1):
            self._walk(compiled, walk)
        return str(compiled.serialize_json())

    def _walk(self, compiled: Any, stride: int) -> None:
        """Follow the structure for some tokens. Raises GrammarError for slow steps or dead ends."""
        matcher = self._xgrammar.GrammarMatcher(compiled)
        vocab = self._tokenizer.vocab_size
        allowed_1W = np.zeros((1, -(-vocab // 32)), np.int32)
        ends = self._tokenizer.stop_token_ids
        for step in range(_WALK_TOKENS):
            before_s = process_time()
            matcher.fill_next_token_bitmask(allowed_1W, 0)
            bits_V = np.unpackbits(allowed_1W.view(np.uint8)[0], count=vocab, bitorder="little")
            can_end = bool(bits_V[ends].any())
            bits_V[ends] = 0
            tokens = np.flatnonzero(bits_V)
            if not len(tokens):
                if can_end:
                    return
                raise GrammarError("no text has this structure, or one of its ways has no end")
            matcher.accept_token(int(tokens[(stride * 7919 * (step + 1)) % len(tokens)]))
            if process_time() - before_s > _SLOWEST_STEP_S:
                raise GrammarError(
                    f"a token of this structure takes more than {_SLOWEST_STEP_S * 1e3:g} ms; make "
                    "the structure simpler"
                )

    def _check_patterns(self, schema: Any) -> None:
        """Raise GrammarError for patterns that only text with JSON escapes can match."""
        for pattern in set(find_patterns(schema)):
            alone = msgspec.json.encode({"type": "string", "pattern": pattern}).decode()
            if "json_string=true" not in str(self._xgrammar.Grammar.from_json_schema(alone)):
                raise GrammarError(
                    f"the pattern {pattern[:60]!r} asks for characters that JSON escapes (quotes, "
                    "backslashes, line ends) or repeats too much; make it simpler"
                )

    def _compile_kind(self, structure: Structure) -> Any:
        match structure.kind:
            case "json_object":
                return self._compiler.compile_json_schema(
                    '{"type": "object"}', strict_mode=False, max_whitespace_cnt=MAX_WHITESPACE
                )
            case "json_schema":
                self._check_patterns(msgspec.json.decode(structure.text))
                return self._compiler.compile_json_schema(
                    structure.text, max_whitespace_cnt=MAX_WHITESPACE
                )
            case "regex":
                return self._compiler.compile_regex(structure.text)
            case "grammar":
                return self._compiler.compile_grammar(structure.text)
            case "choice":
                return self._compiler.compile_grammar(build_choice_grammar(structure.text))
            case "structural_tag":
                for schema in find_schemas(msgspec.json.decode(structure.text)):
                    self._check_patterns(schema)
                return self._compiler.compile_structural_tag(structure.text)


class XGrammar:
    """A `Grammar` of the xgrammar library."""

    def __init__(self, matcher: Any, surrogates: SurrogateMask) -> None:
        self._matcher = matcher
        self._surrogates = surrogates
        self._last_token: int | None = None

    def fill(self, allowed_RW: npt.NDArray[np.int32], row: int) -> None:
        """Write the tokens that may come next. See Grammar."""
        if self.is_finished:
            allowed_RW[row] = 0
            return
        self._matcher.fill_next_token_bitmask(allowed_RW, row)
        self._surrogates.apply(self._last_token, allowed_RW[row])

    def accept(self, token_id: int) -> bool:
        """Advance by a token. See Grammar."""
        self._last_token = token_id
        return bool(self._matcher.accept_token(token_id))

    @property
    def is_finished(self) -> bool:
        """Whether the text has ended."""
        return bool(self._matcher.is_terminated())


class CompiledStructure:
    """A compiled structure. Any number of texts may follow it at once."""

    def __init__(self, compiled: Any, surrogates: SurrogateMask, size_bytes: int) -> None:
        self._compiled = compiled
        self._surrogates = surrogates
        self.size_bytes = size_bytes

    @classmethod
    def read(cls, text: str, tokenizer: "ReadTokenizer") -> "CompiledStructure":
        """Read the output of `Compiler.compile` for the same vocabulary."""
        compiled = load_xgrammar().CompiledGrammar.deserialize_json(text, tokenizer.info)
        return cls(compiled, tokenizer.surrogates, len(text))

    def start(self) -> XGrammar:
        """The state before the first token."""
        return XGrammar(load_xgrammar().GrammarMatcher(self._compiled), self._surrogates)


class _WrittenTokenizer(msgspec.Struct, frozen=True):
    info: str
    surrogates: SurrogateTokens


class ReadTokenizer(msgspec.Struct, frozen=True):
    """The library's view of a vocabulary, and tokens that it wrongly takes for text."""

    info: Any
    surrogates: SurrogateMask


def read_tokenizer(text: str) -> ReadTokenizer:
    """A `Compiler`'s vocabulary, made without the interpreter's lock."""
    encode_text = decode(text, _WrittenTokenizer)
    info = load_xgrammar().TokenizerInfo.deserialize_json(encode_text.info)
    return ReadTokenizer(info, SurrogateMask(encode_text.surrogates, -(-info.vocab_size // 32)))


def build_tokenizer_info(vocabulary: Vocabulary) -> Any:
    """The library's view of a vocabulary."""
    xgrammar = load_xgrammar()
    kinds = {
        "byte_level": xgrammar.VocabType.BYTE_LEVEL,
        "byte_fallback": xgrammar.VocabType.BYTE_FALLBACK,
        "raw": xgrammar.VocabType.RAW,
    }
    tokens: list[str | bytes] = list(vocabulary.tokens)
    for token_id in vocabulary.added:
        tokens[token_id] = encode_text(vocabulary.tokens[token_id], vocabulary.kind)
    for token_id in vocabulary.control:
        tokens[token_id] = encode_text(_NO_TEXT, vocabulary.kind)
    return xgrammar.TokenizerInfo(
        tokens,
        vocab_type=kinds[vocabulary.kind],
        vocab_size=len(vocabulary.tokens),
        stop_token_ids=list(vocabulary.end_token_ids),
        add_prefix_space=vocabulary.adds_prefix_space,
    )


def encode_text(text: str | bytes, kind: str) -> str | bytes:
    """A text in the encoding of a vocabulary of this kind."""
    data = text.encode() if isinstance(text, str) else text
    if kind == "byte_level":
        return "".join(BYTE_LETTERS[byte] for byte in data)
    return data.replace(b" ", "\u2581".encode()) if kind == "byte_fallback" else data


def build_choice_grammar(text: str) -> str:
    """EBNF of one of the strings in the JSON list `text`."""
    choices: Sequence[str] = decode(text, list[str])
    return "root ::= " + " | ".join(f'"{_escape(choice)}"' for choice in choices)


def _escape(text: str) -> str:
    return "".join(
        letter if letter.isalnum() and letter.isascii() else f"\\U{ord(letter):08x}"
        for letter in text
    )


def _shorten_reason(message: str) -> str:
    """The library's message without its source locations, cut to a readable length."""
    reason = message.strip().partition("\n")[0] or "no reason given"
    location = ".cc:"
    while location in reason[:120]:
        reason = reason[reason.index(location) + len(location) :].lstrip("0123456789").lstrip(": ")
    return reason[:300]


def load_vocabulary(folder: Path, *, vocab_size: int, end_token_ids: Sequence[int]) -> Vocabulary:
    """The first `vocab_size` tokens of the tokenizer in `folder`.

    An added token has its text, a control token an empty one. Raises GrammarError for a model
    without end tokens or without a tokenizer.
    """
    path = folder / "tokenizer.json"
    if not path.exists():
        raise GrammarError(f"structured output needs tokenizer.json, which {folder} has not")
    ends = tuple(token_id for token_id in end_token_ids if token_id < vocab_size)
    if not ends:
        raise GrammarError("structured output needs a token that ends the text; the model has none")
    tokenizer = Tokenizer.from_file(str(path))
    tokens = [""] * vocab_size
    for text, token_id in tokenizer.get_vocab(with_added_tokens=True).items():
        if token_id < vocab_size:
            tokens[token_id] = text
    added = {
        token_id: token
        for token_id, token in tokenizer.get_added_tokens_decoder().items()
        if token_id < vocab_size
    }
    for token_id, token in added.items():
        is_text = not token.special and token_id not in ends
        tokens[token_id] = token.content if is_text else ""
    settings = msgspec.json.decode(tokenizer.to_str())
    parts = _list_parts(settings.get("decoder"))
    kind = "raw"
    if "ByteLevel" in parts:
        kind = "byte_level"
    elif "ByteFallback" in parts:
        kind = "byte_fallback"
    return Vocabulary(
        tokens=tuple(tokens),
        kind=kind,
        added=tuple(token_id for token_id in added if tokens[token_id]),
        control=tuple(it for it, token in added.items() if token.special and it not in ends),
        adds_prefix_space="Prepend" in _list_parts(settings.get("normalizer")),
        end_token_ids=ends,
    )


def _list_parts(setting: Any) -> list[str]:
    """The types of a part of a tokenizer, and of the members if it is a sequence."""
    if not isinstance(setting, dict):
        return []
    inner = [*setting.get("decoders", []), *setting.get("normalizers", [])]
    return [str(setting.get("type")), *(name for part in inner for name in _list_parts(part))]
