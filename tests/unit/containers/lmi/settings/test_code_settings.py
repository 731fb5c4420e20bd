"""Settings of custom code and sessions."""

from pathlib import Path

import pytest

from hostelry.containers.lmi.code.author_code import CodePolicy
from hostelry.containers.lmi.settings.code_settings import CodeSettings
from hostelry.containers.lmi.settings.config import resolve_config
from hostelry.containers.lmi.settings.option_reader import ConfigurationError

CONFINED = {"HOSTELRY_CUSTOM_CODE": "confined"}
INSTALLED = {**CONFINED, "HOSTELRY_CUSTOM_CODE_REQUIREMENTS": "install"}


def settings(env: dict[str, str], properties: str = "", *listing: str) -> CodeSettings:
    return resolve_config(env, properties, listing, Path("/model"), 4).code


def test_code_is_off_and_sessions_are_on_unless_set() -> None:
    found = settings({})
    assert (found.policy, found.installs, found.secure) == (CodePolicy.OFF, False, None)
    assert found.sessions_expiration_s == 1200


@pytest.mark.parametrize(
    ("env", "properties", "listing"),
    [
        pytest.param(CONFINED, "option.entryPoint=model.py", ["model.py"], id="confined"),
        pytest.param({"HOSTELRY_CUSTOM_CODE": "trusted"}, "", ["model.py"], id="trusted"),
        pytest.param(INSTALLED, "", ["model.py", "requirements.txt"], id="packages"),
        pytest.param({}, "option.entryPoint=djl_python.huggingface", [], id="LMI's own"),
        pytest.param({}, "option.sessions_expiration=60", [], id="another expiration"),
        pytest.param({}, "option.enable_stateful_sessions=false", [], id="no sessions"),
    ],
)
def test_settings_that_are_accepted(
    env: dict[str, str], properties: str, listing: list[str]
) -> None:
    settings(env, properties, *listing)


@pytest.mark.parametrize(
    ("env", "properties", "listing", "message"),
    [
        pytest.param({}, "", ["model.py"], "custom code is off", id="code without leave"),
        pytest.param({}, "", ["requirements.txt"], "is not installed", id="packages"),
        pytest.param(CONFINED, "option.entryPoint=model.py", [], "does not hold", id="no file"),
        pytest.param(CONFINED, "option.entryPoint=serve.py", [], "must be model.py", id="another"),
        pytest.param({"HOSTELRY_CUSTOM_CODE": "yes"}, "", [], "off, confined, trusted", id="word"),
        pytest.param({}, "option.sessions_expiration=0", [], "from 1 to", id="no time"),
        pytest.param({}, "option.sessions_expiration=1e9", [], "whole number", id="no number"),
        pytest.param({}, "option.enable_stateful_sessions=1", [], "true or false", id="no flag"),
    ],
)
def test_settings_that_are_refused(
    env: dict[str, str], properties: str, listing: list[str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        settings(env, properties, *listing)
