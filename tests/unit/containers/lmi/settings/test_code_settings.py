"""Settings of custom code, of sessions and of secure mode."""

from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.containers.lmi.code.author_code import CodePolicy
from hostelry.containers.lmi.settings.code_settings import (
    CodeSettings,
    SecureMode,
    SecureModeError,
    SecurityControl,
)
from hostelry.containers.lmi.settings.config import LmiConfig, resolve_config
from hostelry.containers.lmi.settings.option_reader import ConfigurationError

CONFINED = {"HOSTELRY_CUSTOM_CODE": "confined"}
INSTALLED = {**CONFINED, "HOSTELRY_CUSTOM_CODE_REQUIREMENTS": "install"}
ALL = ",".join(it.value for it in SecurityControl)
ON = {"SAGEMAKER_SECURE_MODE": "true", "SAGEMAKER_SECURITY_CONTROLS": ALL}
EVERY = SecureMode(frozenset(SecurityControl))


def settings(env: dict[str, str], properties: str = "", *listing: str) -> CodeSettings:
    return resolve_config(env, properties, listing, Path("/model"), 4).code


def test_code_is_off_and_sessions_are_on_unless_set() -> None:
    found = settings({})
    assert (found.policy, found.installs, found.secure) == (CodePolicy.OFF, False, None)
    assert found.sessions_expiration_s == 1200


@cases(
    "env, properties, listing",
    case("confined", CONFINED, "option.entryPoint=model.py", ["model.py"]),
    case("trusted", {"HOSTELRY_CUSTOM_CODE": "trusted"}, "", ["model.py"]),
    case("packages", INSTALLED, "", ["model.py", "requirements.txt"]),
    case("LMI's own", {}, "option.entryPoint=djl_python.huggingface", []),
    case("another expiration", {}, "option.sessions_expiration=60", []),
    case("no sessions", {}, "option.enable_stateful_sessions=false", []),
)
def test_settings_that_are_accepted(
    env: dict[str, str], properties: str, listing: list[str]
) -> None:
    settings(env, properties, *listing)


@cases(
    "env, properties, listing, message",
    case("code without leave", {}, "", ["model.py"], "custom code is off"),
    case("packages", {}, "", ["requirements.txt"], "is not installed"),
    case("no file", CONFINED, "option.entryPoint=model.py", [], "does not hold"),
    case("another", CONFINED, "option.entryPoint=serve.py", [], "must be model.py"),
    case("word", {"HOSTELRY_CUSTOM_CODE": "yes"}, "", [], "off, confined, trusted"),
    case("no time", {}, "option.sessions_expiration=0", [], "from 1 to"),
    case("no number", {}, "option.sessions_expiration=1e9", [], "whole number"),
    case("no flag", {}, "option.enable_stateful_sessions=1", [], "true or false"),
)
def test_settings_that_are_refused(
    env: dict[str, str], properties: str, listing: list[str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        settings(env, properties, *listing)


def configured(properties: str, env: dict[str, str]) -> LmiConfig:
    return resolve_config(env, properties, (), Path("/model"), 4)


@cases(
    "properties, env, message",
    case("no controls", "", {"SAGEMAKER_SECURITY_CONTROLS": ""}, "is not set"),
    case("unknown", "", {"SAGEMAKER_SECURITY_CONTROLS": "DISALLOW_ALL"}, "knows"),
    case("file", "option.tenants={}", {}, "Property option.tenants is prohibited"),
    case("variable", "", {"OPTION_TENANTS": "{}"}, "option.tenants is prohibited"),
    case("property", "wlm_error_http_code=500", {}, "wlm_error_http_code is proh"),
    case("remote code", "option.trust_remote_code=True", {}, "TRUST_REMOTE_CODE"),
    case("entry point", "option.entryPoint=model.py", {}, "Custom entrypoint"),
    case("interpreter", "option.pythonExecutable=/bin/x", {}, "Python executable"),
)
def test_settings_that_it_forbids(properties: str, env: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        configured(properties, {**ON, **env})


@cases(
    "properties, env",
    case("options of adapters", "option.enable_lora=true\noption.max_loras=4", {}),
    case("own", "", {"OPTION_ENTRYPOINT": "djl_python.lmi_vllm.vllm_async_service"}),
    case("SageMaker's own", "", {"SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "9"}),
    case("it is off", "option.tenants={}", {"SAGEMAKER_SECURE_MODE": "false"}),
)
def test_settings_that_it_allows(properties: str, env: dict[str, str]) -> None:
    configured(properties, {**ON, **env})


@cases(
    "file, text, message",
    case("code", "model.py", "", "Custom model.py found"),
    case("packages", "requirements.txt", "", "requirements.txt found"),
    case("a pickle below", "adapters/a/x.BIN", "", "Pickle-based file x.BIN"),
    case("template", "tokenizer_config.json", '{"chat_template": ""}', "chat_temp"),
    case("a template's own file", "chat_template.jinja", "", "chat_template"),
    case("no JSON", "tokenizer_config.json", "{", "cannot be read"),
)
def test_files_of_the_model_that_it_forbids(
    tmp_path: Path, file: str, text: str, message: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with pytest.raises(SecureModeError, match=message):
        EVERY.check_model(tmp_path, tmp_path)
    SecureMode(frozenset()).check_model(tmp_path, tmp_path)


def test_a_channel_is_searched_below_the_model_folder_and_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").touch()
    EVERY.check_model(tmp_path, tmp_path)
    SecureMode(EVERY.controls, ("/opt/ml/model",)).check_model(tmp_path, tmp_path)
    with pytest.raises(SecureModeError, match="is not a directory"):
        SecureMode(EVERY.controls, ("/opt/ml/model/none",)).check_model(tmp_path, tmp_path)


@pytest.mark.parametrize("file", ["model.py", "requirements.txt", "adapter_model.bin"])
def test_an_adapter_that_it_forbids(tmp_path: Path, file: str) -> None:
    EVERY.check_adapter(str(tmp_path))
    (tmp_path / file).touch()
    with pytest.raises(SecureModeError, match=f"{file}|Pickle"):
        EVERY.check_adapter(str(tmp_path))


@pytest.mark.parametrize("src", ["s3://bucket/adapter", "/none"])
def test_an_adapter_that_cannot_be_searched(src: str) -> None:
    with pytest.raises(SecureModeError, match="not a valid directory"):
        EVERY.check_adapter(src)


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    EVERY.check_model(tmp_path, tmp_path)
