"""Typed reads of merged options. An invalid value raises ConfigurationError."""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.base.json import decode, nests_deeper
from hostelry.containers.lmi.artifact_path import relative_path
from hostelry.containers.lmi.refusal import StatusCodes
from hostelry.containers.lmi.request.context import MAX_DEADLINE_S
from hostelry.containers.lmi.settings.option_table import SECRETS
from hostelry.containers.lmi.settings.options import Options, Setting

T = TypeVar("T")

SHOWN_CHARACTERS = 200
MAX_INTEGER = 2**53 - 1  # of any setting: exact in the number format of every client
HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
MAX_NESTING = 32  # of JSON in an option
MAX_NAMES = 64  # in one option


class ConfigurationError(HostelryError):
    """The server's configuration is invalid. The message names key, value and choices."""


class OptionReader:
    """Typed reads of options. An invalid value raises ConfigurationError.

    `warnings` are the options' warnings, to which a reader may add.
    """

    def __init__(self, options: Options) -> None:
        self._settings = options.settings
        self.warnings = options.warnings

    def text(self, name: str) -> str | None:
        """The option's text."""
        setting = self._settings.get(name)
        return setting.value if setting else None

    def flag(self, name: str, default: bool) -> bool:
        """True or false, in any case."""
        return self.choice(name, str(default).lower(), ("true", "false"), str.lower) == "true"

    def choice(
        self,
        name: str,
        default: str,
        allowed: tuple[str, ...],
        form: Callable[[str], str] = str.lower,
    ) -> str:
        """One of `allowed`."""
        setting = self._settings.get(name)
        if setting is None:
            return default
        value = form(setting.value)
        if value not in allowed:
            raise invalid_setting(setting, f"one of {', '.join(allowed)}")
        return value

    def integer(self, name: str, default: int, low: int) -> int:
        """A whole number of at least `low`."""
        value = self.optional_integer(name, low)
        return default if value is None else value

    def optional_integer(self, name: str, low: int) -> int | None:
        """A whole number of at least `low`. None if absent."""
        setting = self._settings.get(name)
        if setting is None:
            return None
        return whole_number(setting, low)

    def folder(self, name: str, default: PurePosixPath) -> PurePosixPath:
        """A folder below the model's, relative to it."""
        setting = self._settings.get(name)
        if setting is None:
            return default
        path = relative_path(setting.value)
        if path is None or not path.parts:
            raise invalid_setting(setting, "a folder inside the model folder, such as adapters")
        return path

    def seconds(self, name: str) -> float | None:
        """A time. None if absent."""
        setting = self._settings.get(name)
        if setting is None:
            return None
        try:
            value = float(setting.value)
        except ValueError:
            value = math.nan
        if not 0 < value <= MAX_DEADLINE_S:
            raise invalid_setting(setting, f"a number greater than 0, at most {MAX_DEADLINE_S:g}")
        return value

    def parse(self, name: str, parse: Callable[[str], T]) -> T | None:
        """The result of `parse`, which may raise ValueError. None if absent."""
        setting = self._settings.get(name)
        if setting is None:
            return None
        try:
            return parse(setting.value)
        except ValueError as error:
            raise ConfigurationError(
                f"{setting.given_as} is {quote_setting(setting)}: {error}"
            ) from error

    def members(self, name: str) -> Mapping[str, Any]:
        """The members of a JSON object. Empty if absent."""
        return self.parse(name, json_object) or {}

    def number(self, name: str) -> float | None:
        """A positive number. None if absent."""
        setting = self._settings.get(name)
        if setting is None:
            return None
        try:
            value = float(setting.value)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise invalid_setting(setting, "a number greater than 0")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Names between commas or spaces, or of a JSON list. Empty if absent."""
        return self.parse(name, parse_names) or ()

    def codes(self) -> StatusCodes:
        """The configurable statuses."""
        return StatusCodes(
            bad_request=self.integer("/bad_request_http_code", 400, 400),
            queue_full=self.integer("/throttle_error_http_code", 503, 400),
            not_ready=self.integer("/wlm_error_http_code", 503, 400),
            timeout=self.integer("/timeout_http_code", 400, 400),
            server_error=self.integer("/server_error_http_code", 500, 400),
        )


def invalid_setting(setting: Setting, allowed: str) -> ConfigurationError:
    """The error of one setting."""
    return ConfigurationError(
        f"{setting.given_as} is {quote_setting(setting)}; it must be {allowed}"
    )


def quote_setting(setting: Setting) -> str:
    """The value for a message, cut. Of a secret the message says only that it is set."""
    is_secret = setting.given_as.lower().endswith(SECRETS)
    return "set" if is_secret else repr(setting.value[:SHOWN_CHARACTERS])


def whole_number(setting: Setting, low: int, high: int = MAX_INTEGER) -> int:
    """The value as a whole number from `low` to `high`. Raises ConfigurationError."""
    digits = setting.value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(high))):
        value = None
    else:
        value = int(setting.value)
    if value is None or not low <= value <= high:
        raise invalid_setting(setting, f"a whole number of at least {low} and at most {high}")
    return value


def header_name(text: str) -> str:
    """The name of a header, in lower case. Raises ValueError."""
    if not HEADER.fullmatch(text):
        raise ValueError("it must be a header's name of at most 64 letters, digits and hyphens")
    return text.lower()


def json_object(text: str) -> dict[str, Any]:
    """The JSON object in `text`. Raises ValueError."""
    try:
        value: dict[str, Any] = decode(text, dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it must be a JSON object: {error}") from error
    if nests_deeper(value, MAX_NESTING):
        raise ValueError(f"it is nested more than {MAX_NESTING} deep")
    return value


def parse_names(text: str) -> tuple[str, ...]:
    """The names in `text`, each once. Raises ValueError."""
    if text.lstrip().startswith("["):
        try:
            given = decode(text, list[str])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"it must be a JSON list of names: {error}") from error
    else:
        given = text.replace(",", " ").split()
    names = tuple(dict.fromkeys(each for each in given if each))
    if not names or len(names) > MAX_NAMES:
        raise ValueError(f"it has {len(names)} names; it must have 1 to {MAX_NAMES}")
    return names
