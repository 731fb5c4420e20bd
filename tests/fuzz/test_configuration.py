"""serving.properties, Environments and images.toml: settings within their bounds, or a refusal."""

import math
from dataclasses import fields
from pathlib import Path
from random import Random

from msgspec.structs import asdict
from tests.fuzz.conftest import Cases, assert_short

from hostelry.base.errors import TerminalError
from hostelry.containers.lmi.artifact_path import path_inside
from hostelry.containers.lmi.settings.config import LmiConfig, resolve_config
from hostelry.containers.lmi.settings.model_source import local_model
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.containers.lmi.settings.option_rows import PROPERTIES
from hostelry.containers.lmi.settings.option_table import OPTIONS
from hostelry.containers.lmi.settings.options import OVERWRITING, PLAIN_NAMES
from hostelry.fleet.rules.given_variables import (
    BUILT_IN_NAMES,
    STEERING_NAMES,
    find_left_out,
    given_variables,
    is_among,
)
from hostelry.fleet.rules.images import ImageRules

WORDS = (
    "", "0", "1", "-1", "16", "1e9", "nan", "inf", "-inf", "true", "False", "auto", "None", "fp16",
    "\u00b2", "\u0663", "\uff11", "9" * 30, "9" * 5_000, "0x10", "1_000", " 7 ", "a,b", ",", "[]",
    "{}", "[" * 3_000, '{"a":' * 3_000, '{"a": {"weight": 1e400}}', '{"a": {"max_queued": 1}}',
    "s3://b/k", "/etc/passwd", "../x", "/opt/ml/model", "/opt/ml/model/../x",
    "a/../../x", "a" * 300,
    "a/" * 900, "{{ x }}", "~", "a\0b", "\u2028", "org/model", "djl_python.huggingface", "vllm",
)  # fmt: skip
MARKS = ("=", ":", " = ", "==", "", "\\", "\n", "\r", "\x0b", "#", "!", "\ufeff")
HUGE = 2**53


def test_any_settings_are_a_configuration_or_a_refusal(cases: Cases, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "out").symlink_to(tmp_path)
    for random in cases(5_000):
        try:
            config = resolve_config(
                environment(random), properties(random), listing(random), tmp_path / "model", 4
            )
            check(config)
            if config.model_id is not None:
                found = local_model(config, config.model_id)
                assert found is None or found.is_relative_to(config.model_dir)
        except ConfigurationError as error:
            assert_short(error)


def check(config: LmiConfig) -> None:
    """Assert that numbers are finite and plausible, and that folders belong to the starter."""
    own = {it.name: getattr(config, it.name) for it in fields(config)}
    for name, value in (*own.items(), *asdict(config.engine).items()):
        if isinstance(value, int | float):
            assert math.isfinite(value)
            assert 0 <= value <= HUGE, name
    assert config.engine.adapter_cache_folder is None
    assert config.artifact_folders == ()
    assert not config.adapters.is_absolute()
    assert ".." not in config.adapters.parts


def test_any_path_stays_in_its_folder(cases: Cases, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "a").mkdir(parents=True)
    (folder / "out").symlink_to(tmp_path)
    (folder / "a" / "up").symlink_to("..")
    parts = ("a", "up", "out", "..", ".", "", "opt", "ml", "model", "x" * 255, "\0", "\u00e9")
    for random in cases(10_000):
        text = random.choice(("", "/", "/opt/ml/model/", "//")) + "/".join(
            random.choice(parts) for _ in range(random.randint(1, 8))
        )
        found = path_inside(text, folder)
        assert found is None or found.resolve().is_relative_to(folder.resolve())


def test_nothing_that_steers_is_passed_on(cases: Cases) -> None:
    letters = "AZ_09az"
    for random in cases(5_000):
        name = random.choice((*BUILT_IN_NAMES, *STEERING_NAMES)).replace(
            "*", "".join(random.choice(letters) for _ in range(random.randint(0, 4)))
        )
        if random.random() < 0.3:
            name = random.choice((name.lower(), f"{name}_X", f" {name}", f"{name}=", name[1:]))
        given = {name: random.choice(WORDS)}
        for passed in (BUILT_IN_NAMES, None, ("MY_*",)):
            some = given_variables(given, passed, 4)
            assert set(find_left_out(given, passed)) == given.keys() - some.keys()
            if passed is not None:
                assert all(is_among(it, passed) for it in some)
            if passed is None:
                assert not any(is_among(it, STEERING_NAMES) for it in some)


def test_any_images_file_is_rules_or_a_refusal(cases: Cases, tmp_path: Path) -> None:
    file = tmp_path / "images.toml"
    for random in cases(1_000):
        content = images(random).encode("utf-8", "surrogatepass")
        file.write_bytes(bytes(content))
        try:
            rule = ImageRules.load(file).resolve(random.choice(("mine:1", "lmi:1", "a/b@sha256:0")))
        except TerminalError as error:
            assert_short(error)
        else:
            assert rule is None or all(isinstance(it, str) for it in rule.argv)


def environment(random: Random) -> dict[str, str]:
    names = [*PLAIN_NAMES, *OVERWRITING, "ENABLE_CUDA_GRAPHS", "SAGEMAKER_MAX_REQUEST_SIZE",
             "SAGEMAKER_MAX_PAYLOAD_IN_MB"]  # fmt: skip
    names += [f"OPTION_{it.upper()}" for it in OPTIONS]
    names += [f"SM_VLLM_{it.upper()}" for it in OPTIONS]
    chosen = random.sample(names, random.randint(0, 4))
    return {name: random.choice(WORDS) for name in chosen}


def properties(random: Random) -> str:
    names = [*(f"option.{it}" for it in OPTIONS), *PROPERTIES, "x"]
    lines = [
        random.choice(names) + random.choice(MARKS) + random.choice(WORDS)
        for _ in range(random.randint(0, 5))
    ]
    if random.random() < 0.2:
        lines.append("".join(random.choice(MARKS) for _ in range(9)))
    return random.choice(("\n", "\r\n", "\\\n")).join(lines)


def listing(random: Random) -> tuple[str, ...]:
    return random.choice(((), ("config.json",), ("model.py",)))


def images(random: Random) -> str:
    """A file of rules with odd values, some of it cut off."""
    values = (
        '"*"', '"["', '"mine:*"', '""', "1", "true", "[]", '["a"]', '["a", 1]', "[" * 3_000,
        '"none"',
        '"host"', '"\\u0000"', "nan", "1979-05-27", "{}", '"""\n"""', "9" * 5_000, "{a={b=1}}",
    )  # fmt: skip
    keys = ("pattern", "command", "container", "network", "environment", "probe", "engine", "pull",
            "enabled", "x")  # fmt: skip
    tables = ("[[image]]", "[image.probe]", "[containers]", "[image]", "", "[[image.probe]]")
    text = '[[image]]\npattern = "mine:*"\ncommand = ["x"]\n' if random.random() < 0.5 else ""
    for _ in range(random.randint(0, 4)):
        text += random.choice(tables) + "\n"
        for key in random.sample(keys, random.randint(0, 3)):
            text += f"{key} = {random.choice(values)}\n"
        if random.random() < 0.3:
            text += 'content_type = "application/json"\nbody = "{}"\n'
    return text[: random.randrange(len(text) + 1)] if random.random() < 0.2 else text
