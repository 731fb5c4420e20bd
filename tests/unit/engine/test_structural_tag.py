"""Structural tags: fixed text, control tokens, schemas and free text in one structure."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import EOS, byte_tokenizer
from tokenizers import AddedToken, Tokenizer

from hostelry.engine.request import Structure
from hostelry.engine.sampling.grammar import Grammar, GrammarError
from hostelry.engine.sampling.structure_compiler import StructureCompiler
from hostelry.engine.sampling.xgrammar_binding import BYTE_LETTERS

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ANY_TEXT = {"type": "any_text"}


def marked_tokenizer() -> Tokenizer:
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken("</think>", special=False)])
    tokenizer.add_special_tokens([AddedToken("[CALLS]", special=True)])
    return tokenizer


TOKENIZER = marked_tokenizer()
THINK_END, CALLS = (TOKENIZER.token_to_id(text) for text in ("</think>", "[CALLS]"))
VOCAB = TOKENIZER.get_vocab_size()


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StructureCompiler]:
    folder = tmp_path_factory.mktemp("marked")
    TOKENIZER.save(str(folder / "tokenizer.json"))
    compiler = StructureCompiler(folder, vocab_size=VOCAB, end_token_ids=(EOS,))
    yield compiler
    compiler.close()


def after(compiler: StructureCompiler, tag: Any, text: str) -> Grammar:
    """The state after a text of a tag."""
    grammar: Grammar = compiler.compile(Structure("structural_tag", json.dumps(tag))).start()
    for token_id in TOKENIZER.encode(text, add_special_tokens=False).ids:
        assert grammar.accept(token_id), (text, token_id)
    return grammar


def allowed(grammar: Grammar) -> set[int]:
    words = np.zeros((1, -(-VOCAB // 32)), np.int32)
    grammar.fill(words, 0)
    bits = np.unpackbits(words.view(np.uint8)[0], count=VOCAB, bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def schema(value: Any) -> Any:
    return {"type": "json_schema", "json_schema": value}


def letters(text: str) -> set[int]:
    return set(TOKENIZER.encode(text, add_special_tokens=False).ids)


def test_arguments_keep_to_their_schema_between_fixed_texts(compiler: StructureCompiler) -> None:
    fixed = {"type": "const_string", "value": "call "}
    tag = {"type": "sequence", "elements": [fixed, schema(CITY)]}
    assert allowed(after(compiler, tag, "call")) == {TOKENIZER.token_to_id("Ġ")}
    assert allowed(after(compiler, tag, 'call {"city": "x"')) & letters("},") == letters("}")
    assert allowed(after(compiler, tag, 'call {"city": "x"}')) == {EOS}


def test_a_control_token_comes_only_where_a_structure_has_it(compiler: StructureCompiler) -> None:
    token = {"type": "token", "token": CALLS}
    tag = {"type": "token_dispatch", "rules": [[CALLS, schema(CITY)]]}
    assert CALLS in allowed(after(compiler, tag, "some text"))
    assert allowed(after(compiler, tag, "some text[CALLS]")) == letters("{")
    assert CALLS not in allowed(after(compiler, tag, '[CALLS]{"city": "'))
    for kind in (ANY_TEXT, {"type": "regex", "pattern": r"(.|\n)*"}):
        assert CALLS not in allowed(after(compiler, kind, "some text"))
    then = {"type": "sequence", "elements": [token, ANY_TEXT]}
    assert allowed(after(compiler, then, "")) == {CALLS}


def test_an_added_token_is_its_text(compiler: StructureCompiler) -> None:
    thought = {"type": "tag", "begin": "", "content": ANY_TEXT, "end": "</think>"}
    tag = {"type": "sequence", "elements": [thought, schema(CITY)]}
    assert THINK_END in allowed(after(compiler, tag, "hm"))
    assert EOS not in allowed(after(compiler, tag, "hm"))
    assert allowed(after(compiler, tag, "hm</think>")) == letters("{")


def test_a_budget_of_tokens_ends_free_text(compiler: StructureCompiler) -> None:
    free = {"type": "any_text", "max_tokens": 3}
    thought = {"type": "tag", "begin": "", "content": free, "end": "</think>"}
    tag = {"type": "sequence", "elements": [thought, ANY_TEXT]}
    assert len(allowed(after(compiler, tag, "ab"))) > 100
    assert allowed(after(compiler, tag, "abc")) == {THINK_END, *letters("<")}


@cases(
    "tag, message",
    case("a schema with not", schema({"not": {}}), "'not', which cannot be kept"),
    case(
        "a schema with an open pattern, inside",
        {"type": "sequence", "elements": [schema({"type": "string", "pattern": "a"})]},
        "must describe the whole text",
    ),
    case("a format that there is not", {"type": "no such"}, "no such"),
    case("no format at all", [[[[1]]]], "structural tag"),
)
def test_what_cannot_be_kept_is_refused(
    compiler: StructureCompiler, tag: Any, message: str
) -> None:
    with pytest.raises(GrammarError, match=message):
        compiler.compile(Structure("structural_tag", json.dumps(tag)))


def test_a_tag_that_nests_too_deep_is_refused(compiler: StructureCompiler) -> None:
    tag: Any = ANY_TEXT
    for _ in range(300):
        tag = {"type": "optional", "content": tag}
    with pytest.raises(GrammarError, match="nests deeper"):
        compiler.compile(Structure("structural_tag", json.dumps(tag)))


SURROGATE, HANGUL = b"\xed\xa0\x80", "\ud55c".encode()


@cases(
    "text, is_kept",
    case("half a surrogate pair", SURROGATE, False),
    case("a letter that begins with the same byte", HANGUL, True),
    case("a second byte elsewhere", "\u00ad".encode(), True),
)
def test_a_string_has_characters_only(
    compiler: StructureCompiler, text: bytes, is_kept: bool
) -> None:
    structure = Structure("json_schema", json.dumps({"type": "string", "maxLength": 2}))
    grammar: Grammar = compiler.compile(structure).start()
    letters = TOKENIZER.get_vocab()
    ids = [letters[BYTE_LETTERS[byte]] for byte in b'"' + text]
    kept = []
    for token_id in ids:
        kept.append(token_id in allowed(grammar))
        assert grammar.accept(token_id)
    assert all(kept) == is_kept
    assert kept[:2] == [True, True]
