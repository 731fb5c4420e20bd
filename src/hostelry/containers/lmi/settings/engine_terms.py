"""The demands of options on each engine. Pure.

an option's treatment by an engine   -> result
done                                 -> nothing here: another module reads it
passed on                            -> an argument of vLLM's engine, or ConfigurationError
changes nothing                      -> nothing
no effect                            -> a warning
refused                              -> a refusal: this engine cannot serve

Refused by both engines, or by the engine that option.backend names: ConfigurationError. An option
that is not in the tables gives a warning, or ConfigurationError with option.strict_options=true.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

from hostelry.containers.lmi.settings.option_reader import (
    SHOWN_CHARACTERS,
    ConfigurationError,
    invalid_setting,
    quote_setting,
)
from hostelry.containers.lmi.settings.option_rows import OptionFate, OptionRow, Treatment
from hostelry.containers.lmi.settings.option_table import OPTIONS, close_names
from hostelry.containers.lmi.settings.options import Options, Setting
from hostelry.containers.lmi.settings.vllm_forms import read_form


class Backend(Enum):
    """The engine to serve the model with. AUTO: by the rule in vllm/choice.py."""

    AUTO = "auto"
    HOSTELRY = "hostelry"
    VLLM = "vllm"


ENGINE_NAMES: Mapping[Backend, str] = {Backend.HOSTELRY: "our own engine", Backend.VLLM: "vLLM"}


class EngineTerms(msgspec.Struct, frozen=True):
    """What the options ask of one engine: its warnings, and why it cannot serve them."""

    warnings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()


class OptionTerms(msgspec.Struct, frozen=True):
    """`warnings` are of both engines."""

    warnings: tuple[str, ...] = ()
    ours: EngineTerms = EngineTerms()
    vllm: EngineTerms = EngineTerms()

    def of(self, engine: Backend) -> EngineTerms:
        """The terms of one engine."""
        return self.vllm if engine is Backend.VLLM else self.ours


def judge_options(
    given: Iterable[tuple[str, Setting, OptionRow | None]], backend: Backend, *, strict: bool
) -> OptionTerms:
    """The terms of options by name, setting and row. Raises ConfigurationError."""
    shared: list[str] = []
    warnings: dict[Backend, list[str]] = {Backend.HOSTELRY: [], Backend.VLLM: []}
    refusals: dict[Backend, list[str]] = {Backend.HOSTELRY: [], Backend.VLLM: []}
    for option, setting, row in given:
        if row is None:
            shared.append(unknown_text(option, setting, strict=strict))
            continue
        if row.ours == row.vllm:
            shared += judge_shared(setting, row.ours)
            continue
        for engine, treatment in ((Backend.HOSTELRY, row.ours), (Backend.VLLM, row.vllm)):
            if treatment.asks_nothing(setting.value):
                continue
            if treatment.fate is OptionFate.NO_EFFECT:
                given_as, name = format_setting(setting), ENGINE_NAMES[engine]
                warnings[engine].append(f"{given_as} has no effect with {name}: {treatment.text}")
            elif treatment.fate is OptionFate.REFUSED or is_ours_alone(setting, row, engine):
                refusals[engine].append(refusal_text(setting, treatment, engine))
    engines = [engine for engine in refusals if backend in (engine, Backend.AUTO)]
    if all(refusals[engine] for engine in engines):
        raise ConfigurationError("; ".join(refusals[engine][0] for engine in engines))
    ours, vllm = (
        EngineTerms(tuple(warnings[engine]), tuple(found)) for engine, found in refusals.items()
    )
    return OptionTerms(tuple(shared), ours, vllm)


def judge_shared(setting: Setting, treatment: Treatment) -> list[str]:
    """The warning of an option that both engines treat alike. Raises if it is refused."""
    if treatment.fate is OptionFate.DONE or treatment.asks_nothing(setting.value):
        return []
    if treatment.fate is OptionFate.REFUSED:
        raise invalid_setting(setting, treatment.text)
    return [f"{format_setting(setting)} has no effect: {treatment.text}"]


def is_ours_alone(setting: Setting, row: OptionRow, engine: Backend) -> bool:
    """True if vLLM would get a value that only our own engine does, such as quantize=int8."""
    if engine is not Backend.VLLM or row.vllm.fate is not OptionFate.PASSED:
        return False
    return row.ours.fate is OptionFate.REFUSED and row.ours.asks_nothing(setting.value)


def refusal_text(setting: Setting, treatment: Treatment, engine: Backend) -> str:
    """Why the engine cannot serve this setting."""
    needed = treatment.text if treatment.fate is OptionFate.REFUSED else "left out"
    return (
        f"{setting.given_as} is {quote_setting(setting)}; with {ENGINE_NAMES[engine]} it must be "
        f"{needed}"
    )


def unknown_text(name: str, setting: Setting, *, strict: bool) -> str:
    """The warning of an option that is not in the tables. Raises if `strict`."""
    kind = "property" if name.startswith("/") else "option"
    close = " or ".join(it.removeprefix("/") for it in close_names(name))
    hint = f"; did you mean {close}?" if close else ""
    message = f"{setting.given_as[:SHOWN_CHARACTERS]} is not a known {kind}{hint}"
    if strict:
        raise ConfigurationError(f"{message} (strict_options refuses what is not known)")
    return f"{message}; it is not used"


def format_setting(setting: Setting) -> str:
    """The setting for a warning."""
    value = quote_setting(setting).strip("'\"")
    return f"{setting.given_as}={value}"


def read_vllm_arguments(options: Options, backend: Backend) -> dict[str, Any]:
    """The arguments of vLLM's engine that options give as they are. Raises ConfigurationError.

    Empty if vLLM is not to serve.
    """
    arguments: dict[str, Any] = {}
    for name, row in OPTIONS.items():
        treatment = row.vllm
        if treatment.fate is not OptionFate.PASSED:
            continue
        setting = options.settings.get(name)
        if setting is None or backend is Backend.HOSTELRY:
            continue
        if treatment.asks_nothing(setting.value) or is_ours_alone(setting, row, Backend.VLLM):
            continue
        try:
            value = read_form(setting.value, treatment.form)
        except ValueError as error:
            raise ConfigurationError(
                f"{setting.given_as} is {quote_setting(setting)}: {error}; it is "
                f"{treatment.text}, for example {treatment.example}"
            ) from error
        arguments[treatment.argument or name] = value
    return arguments
