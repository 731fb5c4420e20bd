"""Structured output: every text keeps to its structure, in any batch, or is refused."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.cases import case, cases
from tests.selection import chosen, runs_all
from tests.unit.containers.lmi.tiny import EOS, byte_tokenizer, write_tokenizer
from tokenizers import Tokenizer

from hostelry.base.clock import monotonic_s
from hostelry.cli.demo import demo_model_folder
from hostelry.engine.request import SamplingParams, Structure, StructureKind
from hostelry.engine.sampling.compile_worker import (
    CompileLimits,
    CompileWorker,
    TokenizerSource,
)
from hostelry.engine.sampling.grammar import Grammar, GrammarError
from hostelry.engine.sampling.history import TokenHistory
from hostelry.engine.sampling.json_schema import rewrite_json_schema
from hostelry.engine.sampling.sampler import sample
from hostelry.engine.sampling.structure_compiler import StructureCompiler, StructureLimits
from hostelry.engine.sampling.xgrammar_binding import XGrammar

SMOL_VOCAB = 49152
MOST_TOKENS = 400

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "é", 'q"']}, "maxItems": 3},
        "boss": {"anyOf": [{"$ref": "#/$defs/id"}, {"type": "null"}]},
    },
    "required": ["name", "age", "boss"],
    "$defs": {"id": {"type": "string", "pattern": "^[a-z]{2}-\\d{3}$"}},
}
ARITHMETIC = """
root ::= term (("+" | "-") term)*
term ::= [1-9] [0-9]? | "(" root ")"
"""


def is_person(text: str) -> bool:
    value = json.loads(text)
    return (
        set(value) <= {"name", "age", "tags", "boss"}
        and len(value["name"]) <= 12
        and type(value["age"]) is int
        and 0 <= value["age"] <= 150
        and set(value.get("tags", [])) <= {"a", "é", 'q"'}
        and len(value.get("tags", [])) <= 3
        and (value["boss"] is None or bool(re.fullmatch("[a-z]{2}-[0-9]{3}", value["boss"])))
    )


def is_arithmetic(text: str) -> bool:
    return bool(re.fullmatch(r"[-+()0-9]+", text)) and type(eval(text)) is int


STRUCTURES: list[Any] = [
    pytest.param(Structure("json_schema", json.dumps(PERSON)), is_person, id="a schema"),
    pytest.param(
        Structure("json_object"), lambda text: isinstance(json.loads(text), dict), id="any object"
    ),
    pytest.param(
        Structure("regex", r"(ab|c)+-\d{2,4}"),
        lambda text: bool(re.fullmatch(r"(ab|c)+-[0-9]{2,4}", text)),
        id="a pattern",
    ),
    pytest.param(Structure("grammar", ARITHMETIC), is_arithmetic, id="a grammar"),
    pytest.param(
        Structure("choice", json.dumps(["yes", 'no \n"quoted" \\ é 😀'])),
        lambda text: text in ("yes", 'no \n"quoted" \\ é 😀'),
        id="a choice",
    ),
]


@pytest.fixture(scope="module")
def smol() -> Iterator[StructureCompiler]:
    compiler = StructureCompiler(demo_model_folder(), vocab_size=SMOL_VOCAB, end_token_ids=[EOS])
    yield compiler
    compiler.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bytes")
    write_tokenizer(folder)
    return folder


def tiny_source(folder: Path) -> TokenizerSource:
    return TokenizerSource(folder=str(folder), vocab_size=259, end_token_ids=(EOS,))


def tiny_compiler(folder: Path, **limits: Any) -> StructureCompiler:
    return StructureCompiler(
        folder, vocab_size=259, end_token_ids=[EOS], limits=StructureLimits(**limits)
    )


@pytest.fixture(scope="module")
def tiny(folder: Path) -> Iterator[StructureCompiler]:
    compiler = tiny_compiler(folder)
    yield compiler
    compiler.close()


@pytest.fixture(scope="module")
def hasty(folder: Path) -> Iterator[StructureCompiler]:
    compiler = tiny_compiler(folder, compiling=CompileLimits(compile_s=2.0))
    yield compiler
    compiler.close()


def tokens_of(
    grammar: XGrammar, tokenizer: Tokenizer, *, seed: int, temperature: float
) -> list[int]:
    """Tokens of a model with random logits within a grammar. End tokens get more likely."""
    vocab, eos = tokenizer.get_vocab_size(), EOS
    closing = [tokenizer.token_to_id(text) for text in '"}]']
    history = TokenHistory(
        SamplingParams(temperature=temperature, max_new_tokens=MOST_TOKENS),
        seed,
        (1,),
        grammar=grammar,
    )
    generator = torch.Generator().manual_seed(seed)
    tokens: list[int] = []
    while not tokens or tokens[-1] != eos:
        assert len(tokens) < MOST_TOKENS, "the text has no end"
        logits = torch.randn(1, vocab, generator=generator)
        logits[0, [eos, *closing]] += len(tokens) / 4
        (sampled,) = sample(logits, [history])
        assert sampled.token_id is not None, sampled.error
        tokens.append(sampled.token_id)
        history.append(sampled.token_id)
    assert grammar.is_finished
    return tokens[:-1]


@pytest.mark.parametrize(("structure", "holds"), STRUCTURES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_of_the_real_tokenizer_keep_to_their_structure(
    smol: StructureCompiler,
    structure: Structure,
    holds: Callable[[str], bool],
    temperature: float,
    pytestconfig: pytest.Config,
) -> None:
    tokenizer = Tokenizer.from_file(str(demo_model_folder() / "tokenizer.json"))
    compiled = smol.compile(structure)
    for seed in chosen(pytestconfig, range(3)):
        tokens = tokens_of(compiled.start(), tokenizer, seed=seed, temperature=temperature)
        text = tokenizer.decode(tokens, skip_special_tokens=False)
        assert holds(text), text


@pytest.mark.parametrize(("structure", "holds"), STRUCTURES)
def test_texts_of_bytes_keep_to_their_structure(
    tiny: StructureCompiler, structure: Structure, holds: Callable[[str], bool]
) -> None:
    compiled = tiny.compile(structure)
    for seed in range(10):
        tokens = tokens_of(compiled.start(), byte_tokenizer(), seed=seed, temperature=1.0)
        text = byte_tokenizer().decode(tokens, skip_special_tokens=False)
        assert holds(text), text


def test_rows_without_a_structure_are_what_they_are_alone(smol: StructureCompiler) -> None:
    compiled = smol.compile(Structure("regex", "[0-9]{5}"))
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(12, SMOL_VOCAB, generator=generator) * 3
    histories = []
    for row in range(12):
        params = SamplingParams(
            temperature=(row % 3) / 2, top_p=0.9, num_logprobs=2 if row % 4 == 0 else None
        )
        grammar = compiled.start() if row % 2 else None
        histories.append(TokenHistory(params, row, (1,), grammar=grammar))
    together = sample(logits, histories)
    for row in range(12):
        assert sample(logits[row : row + 1], [histories[row]]) == [together[row]]


def test_a_structure_is_in_the_state_of_the_tokens_so_far(tiny: StructureCompiler) -> None:
    grammar = tiny.compile(Structure("regex", "ab?c")).start()
    history = TokenHistory(SamplingParams(), 0, (1,), grammar=grammar)
    a, b, c = byte_tokenizer().encode("abc").ids
    history.append(a)
    assert allowed(grammar) == {b, c}
    history.append(b)
    assert allowed(grammar) == {c}
    with pytest.raises(RuntimeError, match=f"token {a} is not one"):
        history.append(a)
    history.append(c)
    assert allowed(grammar) == {EOS}
    assert not grammar.is_finished
    history.append(EOS)
    assert grammar.is_finished
    assert allowed(grammar) == set()
    assert not grammar.accept(a)


def allowed(grammar: Grammar, vocab: int = 259) -> set[int]:
    words = np.zeros((1, -(-vocab // 32)), np.int32)
    grammar.fill(words, 0)
    bits = np.unpackbits(words.view(np.uint8)[0], count=vocab, bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def test_control_tokens_are_no_text(tiny: StructureCompiler) -> None:
    grammar = tiny.compile(Structure("regex", r"(.|\n)*")).start()
    assert allowed(grammar) & {0, 1, 2} == {EOS}


def test_structures_are_compiled_once(folder: Path) -> None:
    compiler = tiny_compiler(folder, num_kept=2)
    first = compiler.submit(Structure("regex", "a"))
    assert compiler.submit(Structure("regex", "a")) is first
    first.result()
    for text in ("b", "c"):
        compiler.compile(Structure("regex", text))
    assert compiler.submit(Structure("regex", "a")) is not first  # the oldest is forgotten
    compiler.close()


def test_what_is_wrong_is_remembered_too(folder: Path) -> None:
    compiler = tiny_compiler(folder)
    broken = compiler.submit(Structure("regex", "(a"))
    with pytest.raises(GrammarError, match="parenthesis is not closed"):
        broken.result()
    assert compiler.submit(Structure("regex", "(a")) is broken
    compiler.close()


def test_too_many_at_once_are_refused(folder: Path) -> None:
    compiler = tiny_compiler(folder, num_waiting=3)
    futures = [compiler.submit(Structure("regex", "a" * count)) for count in range(1, 4)]
    with pytest.raises(GrammarError, match="3 structures are being compiled"):
        compiler.submit(Structure("regex", "b"))
    assert all(future.result() for future in futures)
    compiler.submit(Structure("regex", "b")).result()
    compiler.close()


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


@cases(
    "kind, text, message",
    case("a repetition upside down", "regex", "a{5,2}", "larger than"),
    case("looking ahead", "regex", "(?=a)b", "Lookahead"),
    case("looking back", "regex", r"(a)\1", "Backreference"),
    case("two thousand brackets", "regex", "(" * 2000 + ")" * 2000, "Nest"),
    case("a null character", "regex", "a\0b", "null character"),
    case("no pattern", "regex", "", "empty"),
    case("a huge pattern", "regex", "a" * 5000, "at most 4096"),
    case("an unfinished rule", "grammar", "root ::= ", "Expect element"),
    case("no root", "grammar", 'x ::= "a"', "root"),
    case("an unknown rule", "grammar", "root ::= x", "not defined"),
    case("a rule that is only itself", "grammar", "root ::= root", "no text"),
    case("no grammar", "grammar", "\n \n", "empty"),
    case("a huge grammar", "grammar", "(" * 100_000, "at most 65536"),
    case("nothing to choose", "choice", "[]", "1 to 1024"),
    case("an empty choice", "choice", '["a", ""]', "none of them empty"),
    case("a number to choose", "choice", '["a", 3]', "no JSON list of texts"),
    case("no JSON", "json_schema", '{"a":', "not JSON"),
    case("sixty thousand brackets", "json_schema", "[" * 60_000, "not JSON"),
    case("a deep one", "json_schema", json.dumps(nested(70)), "deeper than 64"),
    case(
        "what nobody checks is deep",
        "json_schema",
        '{"default":' + "[" * 900 + "]" * 900 + "}",
        "deeper than 192",
    ),
    case("a schema that is only itself", "json_schema", '{"$ref": "#"}', "no text|Circular"),
    case(
        "hours of work",
        "json_schema",
        json.dumps(
            {
                "type": "object",
                "properties": {
                    f"p{n}": {"type": "string", "pattern": f"^(a{{1,{n + 900}}}b?){{1,999}}$"}
                    for n in range(600)
                },
            }
        ),
        "simpler|at most",
    ),
)
def test_hostile_structures_are_refused_within_a_bound(
    hasty: StructureCompiler, kind: StructureKind, text: str, message: str
) -> None:
    started = monotonic_s()
    with pytest.raises(GrammarError, match=message) as refused:
        hasty.compile(Structure(kind, text))
    assert len(str(refused.value)) < 400
    assert monotonic_s() - started < 60


def test_a_structure_with_slow_steps_is_refused(smol: StructureCompiler) -> None:
    with pytest.raises(GrammarError, match="takes more than 30 ms"):
        smol.compile(Structure("regex", "(.*.*.*.*.*.*.*.*)*x"))


@cases(
    "schema, message",
    case("a number", 3, "must be a JSON schema"),
    case("an unknown type", {"type": "strin"}, "type is 'strin'"),
    case("a number as type", {"type": 5}, "type is 5"),
    case("no type of a list", {"type": []}, r"type is \[\]"),
    case("not", {"not": {"type": "string"}}, "has 'not'"),
    case("one of", {"oneOf": [{"type": "string"}]}, "has 'oneOf'"),
    case("if", {"if": {}, "then": {}}, "has 'if'"),
    case("unique items", {"type": "array", "uniqueItems": True},
        "'uniqueItems', which cannot be kept exactly"),
    case("multiples", {"type": "integer", "multipleOf": 3}, "multipleOf"),
    case("a keyword of another type", {"type": "string", "minimum": 3}, "'minimum'"),
    case("unknown format", {"type": "string", "format": "zip"}, "format is 'zip'"),
    case("part of a text", {"type": "string", "pattern": "a"}, "the whole text"),
    case("a pattern and a length", {"type": "string", "pattern": "^a$", "maxLength": 3},
        "only one of them"),
    case("length as text", {"type": "string", "maxLength": "4"}, "maxLength is '4'"),
    case("a huge length", {"minLength": 10**9}, "0 to 2000"),
    case("a format", {"type": "string", "format": "email"}, "format is 'email'"),
    case("requires the unknown", {"type": "object", "required": ["a"]}, "names 'a'"),
    case("properties as a number", {"properties": 5}, "properties is 5"),
    case("a number inside", {"properties": {"a": 5}}, r"\$.properties.a is 5"),
    case("items as a list", {"items": [{"type": "string"}]}, "items is"),
    case("any of nothing", {"anyOf": []}, "must be a list of schemas"),
    case("any of, and a type", {"anyOf": [{}], "type": "string"}, "beside type"),
    case("all of two", {"allOf": [{}, {}]}, "join them"),
    case("a remote reference", {"$ref": "http://x/y"}, "point into this schema"),
    case("a reference to nothing", {"$ref": "#/$defs/a"}, "not there"),
    case("a number as reference", {"$ref": 3}, "point into"),
    case("enum of another", {"type": "integer", "enum": ["a"]}, "of type integer"),
    case("a constant with a bound", {"const": 1, "minimum": 3}, "beside minimum"),
    case("in a definition", {"$defs": {"a": {"not": {}}}}, "'not'"),
    case("five thousand schemas", {"anyOf": [{}] * 5000}, "more than 4096"),
)  # fmt: skip
def test_schemas_that_cannot_be_kept_are_refused(schema: Any, message: str) -> None:
    with pytest.raises(GrammarError, match=message) as refused:
        rewrite_json_schema(json.dumps(schema))
    assert len(str(refused.value)) < 400


@cases(
    "schema",
    case("anything", True),
    case("anything as an object", {}),
    case("annotations", {"title": "T", "description": "d", "default": {"not": 3}}),
    case("two types", {"type": ["string", "null"], "maxLength": 4}),
    case("without a type", {"properties": {"a": {"const": [1, {"not": 2}]}}}),
    case("all of one", {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {}}}),
    case("a map",
        {"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 1}),
    case("a tuple", {"type": "array", "prefixItems": [{"type": "null"}], "items": False}),
    case("a date", {"type": "string", "format": "date"}),
    case("a bound", {"type": "number", "exclusiveMinimum": 0.5}),
    case("itself", {"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}),
)  # fmt: skip
def test_schemas_that_can_be_kept(tiny: StructureCompiler, schema: Any) -> None:
    compiled = tiny.compile(Structure("json_schema", json.dumps(schema)))
    tokens = tokens_of(compiled.start(), byte_tokenizer(), seed=1, temperature=1.0)
    json.loads(byte_tokenizer().decode(tokens, skip_special_tokens=False))


@pytest.mark.parametrize("pattern", ['^"$', r"^a\n$", r"^[\x00-\x1f]$", r"^\\$"])
def test_patterns_of_escaped_characters_are_refused(tiny: StructureCompiler, pattern: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    with pytest.raises(GrammarError, match="characters that JSON escapes"):
        tiny.compile(Structure("json_schema", json.dumps(schema)))


@cases(
    "schema",
    case("a length", {"type": "string", "minLength": 2, "maxLength": 5}),
    case("at least", {"type": "string", "minLength": 3}),
    case("a pattern of anything", {"type": "string", "pattern": r"^(\W|.)*$"}),
    case("any text", {"type": "string"}),
    case("a format", {"type": "string", "format": "hostname"}),
)
def test_strings_are_json_whatever_they_hold(
    tiny: StructureCompiler, schema: dict[str, Any], pytestconfig: pytest.Config
) -> None:
    compiled = tiny.compile(Structure("json_schema", json.dumps(schema)))
    for seed in range(30 if runs_all(pytestconfig) else 8):
        tokens = tokens_of(compiled.start(), byte_tokenizer(), seed=seed, temperature=1.0)
        text = json.loads(byte_tokenizer().decode(tokens, skip_special_tokens=False))
        if "\ufffd" not in text:  # bytes that are not valid text
            assert schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", MOST_TOKENS)


def test_a_compiling_process_that_died_is_replaced(folder: Path) -> None:
    worker = CompileWorker(tiny_source(folder), CompileLimits())
    worker.compile(Structure("regex", "a"))
    assert worker.pid is not None
    subprocess.run(["kill", "-9", str(worker.pid)], check=True)
    with pytest.raises(GrammarError, match="ended the process"):
        worker.compile(Structure("regex", "ab"))
    assert worker.compile(Structure("regex", "ab"))
    worker.close()
    assert worker.pid is None


def test_memory_is_bounded(folder: Path) -> None:
    worker = CompileWorker(tiny_source(folder), CompileLimits(memory_bytes=50 << 20))
    with pytest.raises(GrammarError):
        worker.compile(Structure("regex", "a"))
    worker.close()


def test_without_the_library_the_message_names_the_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    with pytest.raises(GrammarError, match=r"pip install hostelry\[structured\]"):
        tiny_compiler(folder).submit(Structure("regex", "a"))


@cases("ends, message", case("no end", [], "the model has none"), case("beyond", [500], "none"))
def test_a_model_that_never_ends_has_no_structures(
    folder: Path, ends: Sequence[int], message: str
) -> None:
    compiler = StructureCompiler(folder, vocab_size=259, end_token_ids=ends)
    with pytest.raises(GrammarError, match=message):
        compiler.compile(Structure("regex", "a"))


def test_a_model_without_a_tokenizer_has_no_structures(tmp_path: Path) -> None:
    compiler = StructureCompiler(tmp_path, vocab_size=259, end_token_ids=[EOS])
    with pytest.raises(GrammarError, match=r"tokenizer\.json"):
        compiler.compile(Structure("regex", "a"))


ALONE = """
import sys
from pathlib import Path
from hostelry.engine.request import Structure
from hostelry.engine.sampling.structure_compiler import StructureCompiler
compiler = StructureCompiler(Path(sys.argv[1]), vocab_size=259, end_token_ids=[2])
compiler.compile(Structure("json_object")).start()
assert "xgrammar" in sys.modules
assert not {"transformers", "torch"} & set(sys.modules), "imported"
compiler.close()
"""


def test_neither_transformers_nor_torch_is_imported(folder: Path) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", ALONE, str(folder)], check=True)
