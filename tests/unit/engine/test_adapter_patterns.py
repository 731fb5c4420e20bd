"""Patterns in adapter_config.json match as in PEFT, in time linear in the pattern."""

import re
import time
from random import Random
from typing import Any

import pytest
from peft import LoraConfig
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key
from tests.cases import case, cases

from hostelry.engine.lora.config import AdapterConfig, parse_config
from hostelry.engine.lora.errors import AdapterError

MODULES = ("q_proj", "k_proj", "o_proj", "gate_proj", "down_proj")
PATHS = [
    *(
        f"model.layers.{layer}.{parent}.{module}"
        for layer in (0, 1, 7, 11, 31)
        for parent in ("self_attn", "mlp")
        for module in MODULES
    ),
    "model.embed_tokens", "lm_head", "q_proj", "xq_proj", "layers.3.q_proj", "h.4.attn.q",
]  # fmt: skip
UNSLOTH = (
    r"(?:.*?(?:language|text).*?(?:self_attn|attention|attn|mlp).*?(?:q_proj|k_proj).*?)"
    r"|(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:q_proj|down_proj)))"
)


def config_of(**fields: Any) -> AdapterConfig:
    return parse_config({"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"], **fields})


@cases(
    "pattern",
    case("two modules", r".*\.(q_proj|k_proj)"),
    case("the first twelve layers", r"model\.layers\.(?:[0-9]|1[01])\..*proj"),
    case("with both ends marked", r"^.*self_attn.*_proj$"),
    case("no pattern of Python", r".*(?<name>)?q_proj"),
    case("a named group", r"(?P<module>.*)\.q_proj"),
    case("whatever the case", r"(?i).*Q_PROJ"),
    case("a class, as little as may be", r"[\w.]+?_proj"),
    case("layers of two digits, and the head", r".*\.\d{2}\..*|lm_head"),
    case("dots for anything", r"model.layers.7.mlp.[^.]+"),
    case("nothing", r""),
    case("stars of stars", r"(.*)*"),
    case("as Unsloth writes them", UNSLOTH),
    case("no short form", "all-linear-but"),
    case("looking ahead", r"^(?!.*mlp).*(?:q_proj|k_proj).*"),
    case("looking ahead in its midst", r"(?:.*(?=\.q)|lm)[._](?:q_proj|head)"),
    case("looking behind", r".*(?<!gate)(?<=._)proj\b"),
)
def test_targets_are_pefts(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error:
        with pytest.raises(AdapterError, match="no valid pattern"):
            config_of(target_modules=pattern)
        return
    for field in ("target_modules", "exclude_modules"):
        fields: dict[str, Any] = {"target_modules": ".*", field: pattern or ".*"}
        ours, pefts = config_of(**fields), LoraConfig(**fields)
        expected = [bool(check_target_module_exists(pefts, path)) for path in PATHS]
        assert [ours.targets(path) for path in PATHS] == expected


@cases(
    "fields",
    case("last parts", {"target_modules": ["q_proj", "lm_head"]}),
    case("two last parts", {"target_modules": ["self_attn.q_proj"]}),
    case("no whole part", {"target_modules": ["proj", "0.self_attn"]}),
    case("a whole path", {"target_modules": ["model.layers.7.mlp.q_proj"]}),
    case("but", {"target_modules": ["q_proj"], "exclude_modules": ["mlp.q_proj"]}),
    case("some layers", {"layers_to_transform": [1, 31]}),
    case("of layers", {"layers_to_transform": 3, "layers_pattern": "layers"}),
    case("of h or x", {"layers_to_transform": [4], "layers_pattern": ["h", "x"]}),
    case("of a pattern", {"layers_to_transform": [7], "layers_pattern": "l[a-z]+"}),
)
def test_lists_of_names_are_pefts(fields: dict[str, Any]) -> None:
    fields = {"target_modules": ["q_proj", "q", "o_proj"], **fields}
    ours, pefts = config_of(**fields), LoraConfig(**fields)
    expected = [bool(check_target_module_exists(pefts, path)) for path in PATHS]
    assert [ours.targets(path) for path in PATHS] == expected


@cases(
    "keys",
    case("the first that matches", ["q_proj", ".*"]),
    case("alternatives", [r"layers\.\d\..*", "down_proj|gate_proj"]),
    case("a whole path, and no part", ["model.layers.0.self_attn.q_proj", "proj"]),
    case("with its ends marked", [r"^model\..*k_proj$", "lm_head"]),
)
def test_tables_of_patterns_are_pefts(keys: list[str]) -> None:
    ranks = {key: number for number, key in enumerate(keys, 2)}
    ours = config_of(rank_pattern=ranks, alpha_pattern=ranks)
    for path in PATHS:
        expected = ranks.get(get_pattern_key(keys, path), 8)
        assert ours.get_rank(path) == expected
        assert ours.alpha_pattern.get(path, 8) == expected


def test_patterns_drawn_at_random_are_pythons() -> None:
    """Every accepted pattern has the same meaning as in Python."""
    random = Random(11)
    parts = [
        *("q", "model", "layers", ".", r"\.", "_proj", "[a-z]", r"\d", r"\w", "(?:", "(", ")", "|"),
        *("*", "+", "?", "*?", "{2}", "{1,3}", "[^.]", ".*", "^", "$", r"\b", "self_attn", "7"),
        *("(?=", "(?!", "(?<=", "(?<!", r"\B", r"\Z", r"[\d_]"),
    ]
    accepted = 0
    for _ in range(4000):
        pattern = "".join(random.choices(parts, k=random.randrange(1, 7)))
        try:
            config = config_of(target_modules=pattern)
        except AdapterError:
            continue
        accepted += 1
        expected = [re.fullmatch(pattern, path) is not None for path in PATHS]
        assert [config.target_modules.has(path) for path in PATHS] == expected, pattern
    assert accepted > 800


@cases(
    "pattern",
    case("forty letters or not", "(?:[a-z0-9._]?){40}!"),
    case("repeats of repeats", "(a+)+$"),
    case("thirty stars", ".*" * 30 + "x"),
    case("choices of the same", "(?:(?:a|a)?b?)*c" * 20),
    case("repeats of repeats after a look ahead", "(?=.)(((((.*)*x?)*y?)*z?)*!)*"),
    case("choices of the same after a look ahead", "(?=m)(?:(?:[a-z.]|m|.)+)+!"),
)
def test_what_takes_python_for_ever_is_answered(pattern: str) -> None:
    """Without the linear matcher this test does not end."""
    config = config_of(
        target_modules=pattern, rank_pattern={pattern: 4}, exclude_modules=f"x{pattern}"
    )
    path = "model.layers.31.self_attn.q_proj" * 4
    assert (config.targets(path), config.get_rank(path)) == (False, 8)


def test_a_class_of_many_letters_takes_the_time_of_a_small_one() -> None:
    paths = [f"model.layers.{number}.self_attn.q_proj" for number in range(1000)]
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + 1900)))

    def cpu_s(name: str) -> float:
        config = config_of(target_modules=f"(?!x)[^{name}]*")
        started_at = time.process_time()
        assert all(config.targets(path) for path in paths)
        return time.process_time() - started_at

    assert cpu_s(letters) < 5 * cpu_s("!") + 0.2
