"""Opting in a target as an unmodified client can: by a tag, or by a policy's metric."""

from collections.abc import Mapping
from dataclasses import fields

from hostelry.domain.load import LoadKey
from hostelry.domain.scaling import TargetTracking
from hostelry.scaling.decide.responsive.expected import expected_metric
from hostelry.scaling.decide.responsive.options import ResponsiveOptions

RESPONSIVE_TAG = "hostelry:responsive"
OFF = "off"
# What a tag may set beside the target: `false-alarms-per-hour=0.5`.
SETTINGS = {
    option.name.replace("_", "-"): option.name
    for option in fields(ResponsiveOptions)
    if option.name != "target"
}


def options_of_tag(value: str) -> ResponsiveOptions | None:
    """What a tag's value asks for, as in "5" or "5 false-alarms-per-hour=0.5"; None for "off".

    Raises ValueError that says what may stand there.
    """
    words = value.split()
    if [it.lower() for it in words] == [OFF]:
        return None
    if not words:
        raise ValueError('it must be the wanted concurrency per copy, for example "5", or "off"')
    given: dict[str, float | int] = {"target": _number(words[0], "the concurrency per copy")}
    for word in words[1:]:
        name, separator, text = word.partition("=")
        if name not in SETTINGS or not separator:
            known = ", ".join(f"{it}=..." for it in SETTINGS)
            raise ValueError(f'"{word}" is no setting; there are {known}')
        if SETTINGS[name] in given:
            raise ValueError(f"{name} is given twice")
        given[SETTINGS[name]] = _number(text, name)
    return ResponsiveOptions(**given)  # type: ignore[arg-type] # checked field by field there


def tag_of_options(options: ResponsiveOptions) -> str:
    """The shortest tag value that says `options`."""
    usual = ResponsiveOptions(target=options.target)
    words = [f"{options.target:g}"]
    for name, field in SETTINGS.items():
        value = getattr(options, field)
        if value != getattr(usual, field):
            words.append(f"{name}={value:g}")
    return " ".join(words)


def options_of_tracking(tracking: TargetTracking, key: LoadKey) -> ResponsiveOptions | None:
    """What a target-tracking policy on `key`'s own expected concurrency asks for; None for others.

    Raises ValueError for a target value that cannot be one.
    """
    stats = [it.stat for it in tracking.queries]
    if len(stats) != 1 or stats[0] is None or stats[0].metric != expected_metric(key):
        return None
    return ResponsiveOptions(target=tracking.target_value)


def chosen(
    own: Mapping[str, str], endpoints: Mapping[str, str], tracking: ResponsiveOptions | None
) -> ResponsiveOptions | None:
    """The options of a target: its own tag, its endpoint's, or its policy's, in that order.

    Raises ValueError for a tag that cannot be read.
    """
    for tags in (own, endpoints):
        if RESPONSIVE_TAG in tags:
            return options_of_tag(tags[RESPONSIVE_TAG])
    return tracking


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f'"{text}" is no number; {what} must be one') from None
