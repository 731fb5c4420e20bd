"""Patterns of adapter_config.json match what PEFT's do, in time linear in the pattern."""

import re
import time
from random import Random
from typing import Any

import pytest
from peft import LoraConfig
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key

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


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r".*\.(q_proj|k_proj)", id="two modules"),
        pytest.param(r"model\.layers\.(?:[0-9]|1[01])\..*proj", id="the first twelve layers"),
        pytest.param(r"^.*self_attn.*_proj$", id="with both ends marked"),
        pytest.param(r".*(?<name>)?q_proj", id="no pattern of Python"),
        pytest.param(r"(?P<module>.*)\.q_proj", id="a named group"),
        pytest.param(r"(?i).*Q_PROJ", id="whatever the case"),
        pytest.param(r"[\w.]+?_proj", id="a class, as little as may be"),
        pytest.param(r".*\.\d{2}\..*|lm_head", id="layers of two digits, and the head"),
        pytest.param(r"model.layers.7.mlp.[^.]+", id="dots for anything"),
        pytest.param(r"", id="nothing"),
        pytest.param(r"(.*)*", id="stars of stars"),
        pytest.param(UNSLOTH, id="as Unsloth writes them"),
        pytest.param("all-linear-but", id="no short form"),
        pytest.param(r"^(?!.*mlp).*(?:q_proj|k_proj).*", id="looking ahead"),
        pytest.param(r"(?:.*(?=\.q)|lm)[._](?:q_proj|head)", id="looking ahead in its midst"),
        pytest.param(r".*(?<!gate)(?<=._)proj\b", id="looking behind"),
    ],
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


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"target_modules": ["q_proj", "lm_head"]}, id="last parts"),
        pytest.param({"target_modules": ["self_attn.q_proj"]}, id="two last parts"),
        pytest.param({"target_modules": ["proj", "0.self_attn"]}, id="no whole part"),
        pytest.param({"target_modules": ["model.layers.7.mlp.q_proj"]}, id="a whole path"),
        pytest.param({"target_modules": ["q_proj"], "exclude_modules": ["mlp.q_proj"]}, id="but"),
        pytest.param({"layers_to_transform": [1, 31]}, id="some layers"),
        pytest.param({"layers_to_transform": 3, "layers_pattern": "layers"}, id="of layers"),
        pytest.param({"layers_to_transform": [4], "layers_pattern": ["h", "x"]}, id="of h or x"),
        pytest.param({"layers_to_transform": [7], "layers_pattern": "l[a-z]+"}, id="of a pattern"),
    ],
)
def test_lists_of_names_are_pefts(fields: dict[str, Any]) -> None:
    fields = {"target_modules": ["q_proj", "q", "o_proj"], **fields}
    ours, pefts = config_of(**fields), LoraConfig(**fields)
    expected = [bool(check_target_module_exists(pefts, path)) for path in PATHS]
    assert [ours.targets(path) for path in PATHS] == expected


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(["q_proj", ".*"], id="the first that matches"),
        pytest.param([r"layers\.\d\..*", "down_proj|gate_proj"], id="alternatives"),
        pytest.param(["model.layers.0.self_attn.q_proj", "proj"], id="a whole path, and no part"),
        pytest.param([r"^model\..*k_proj$", "lm_head"], id="with its ends marked"),
    ],
)
def test_tables_of_patterns_are_pefts(keys: list[str]) -> None:
    ranks = {key: number for number, key in enumerate(keys, 2)}
    ours = config_of(rank_pattern=ranks, alpha_pattern=ranks)
    for path in PATHS:
        expected = ranks.get(get_pattern_key(keys, path), 8)
        assert ours.rank_of(path) == expected
        assert ours.alpha_pattern.get(path, 8) == expected


def test_patterns_drawn_at_random_are_pythons() -> None:
    """Every pattern that is accepted means what it means to Python."""
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


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("(?:[a-z0-9._]?){40}!", id="forty letters or not"),
        pytest.param("(a+)+$", id="repeats of repeats"),
        pytest.param(".*" * 30 + "x", id="thirty stars"),
        pytest.param("(?:(?:a|a)?b?)*c" * 20, id="choices of the same"),
        pytest.param("(?=.)(((((.*)*x?)*y?)*z?)*!)*", id="repeats of repeats after a look ahead"),
        pytest.param("(?=m)(?:(?:[a-z.]|m|.)+)+!", id="choices of the same after a look ahead"),
    ],
)
def test_what_takes_python_for_ever_is_answered(pattern: str) -> None:
    """Without the linear matcher this test does not end."""
    config = config_of(
        target_modules=pattern, rank_pattern={pattern: 4}, exclude_modules=f"x{pattern}"
    )
    path = "model.layers.31.self_attn.q_proj" * 4
    assert (config.targets(path), config.rank_of(path)) == (False, 8)


def test_a_class_of_many_letters_takes_the_time_of_a_small_one() -> None:
    paths = [f"model.layers.{number}.self_attn.q_proj" for number in range(1000)]
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + 1900)))

    def cpu_s(name: str) -> float:
        config = config_of(target_modules=f"(?!x)[^{name}]*")
        started_at = time.process_time()
        assert all(config.targets(path) for path in paths)
        return time.process_time() - started_at

    assert cpu_s(letters) < 5 * cpu_s("!") + 0.2
