"""Options of the responsive policy, its limits, and how a target opts in."""

import math
from collections.abc import Mapping

import msgspec

from hostelry.domain.load import LoadKey
from hostelry.domain.scaling import TargetTracking
from hostelry.scaling.decide.decision import Capacity
from hostelry.scaling.decide.responsive.estimates import build_expected_metric

# Seconds are looked at one by one, but neighbours share most of their evidence: a test every second
# raises as many false alarms as this many independent ones an hour. Tuned by
# benchmarks/detection_study.py on seeds that its table does not use.
TESTS_PER_HOUR = 3200.0
DRIFTS_PER_HOUR = 60.0  # independent tests of the slow averages


class ResponsiveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One target's options. Raises ValueError for impossible values.

    `target` is the wanted concurrency per copy. `false_alarms_per_hour` is how many acts an hour of
    unchanged load may cost. In the first `warm_up_s` only `queue_age_s` acts: the age at which a
    waiting call adds one copy. An act multiplies capacity by at most `max_growth`, unless a call
    has waited for over `queue_slo_s`. `scale_in_after_s` None leaves scale-in to AWS's policies.
    Otherwise one copy goes after each such time of too little load.
    """

    target: float
    false_alarms_per_hour: float = 1.0
    warm_up_s: float = 60.0
    queue_age_s: float = 1.0
    queue_slo_s: float = 5.0
    max_growth: float = 2.0
    acts_per_minute: int = 6
    scale_in_after_s: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None and name == "scale_in_after_s":
                continue
            low, high = _BOUNDS[name]
            if not low <= value <= high:  # NaN is within no bounds
                raise ValueError(f"{name} is {value}; it must be from {low:g} to {high:g}")

    @property
    def threshold(self) -> float:
        """The log likelihood ratio from which a rise of arrivals is believed."""
        return math.log(TESTS_PER_HOUR / self.false_alarms_per_hour)

    @property
    def deviations(self) -> float:
        """How many standard deviations above capacity a slow average is believed to be."""
        return math.sqrt(2.0 * math.log(DRIFTS_PER_HOUR / self.false_alarms_per_hour))


_BOUNDS: dict[str, tuple[float, float]] = {
    "target": (0.01, 1e6),
    "false_alarms_per_hour": (0.001, 20.0),
    "warm_up_s": (10.0, 3600.0),
    "queue_age_s": (0.1, 3600.0),
    "queue_slo_s": (0.1, 3600.0),
    "max_growth": (1.1, 1000.0),
    "acts_per_minute": (1, 60),
    "scale_in_after_s": (30.0, 86400.0),
}


MINUTE_S = 60.0
APART_S = 2.0  # another second or two show how far an act must go


def select_recent_acts(acts: tuple[float, ...], now: float) -> tuple[float, ...]:
    """The acts of the last minute. An act that lies ahead is of a clock that was set back."""
    return tuple(at for at in acts if 0.0 <= now - at < MINUTE_S)


def may_act(acts: tuple[float, ...], options: ResponsiveOptions, now: float) -> bool:
    """Whether the acts of the last minute leave room for one more."""
    if len(acts) >= options.acts_per_minute:
        return False
    return not acts or now - acts[-1] >= APART_S


def limit_copies(
    desired: int, capacity: Capacity, options: ResponsiveOptions, oldest_held_s: float
) -> int:
    """`desired` copies within the target's bounds and the growth of one act. Zero grows as one."""
    if oldest_held_s <= options.queue_slo_s:
        most = math.floor(max(capacity.desired, 1) * options.max_growth)
        desired = min(desired, max(most, capacity.desired + 1))
    return capacity.clamp(desired)


RESPONSIVE_TAG = "hostelry:responsive"
OFF = "off"
# Settings that a tag may have after the target, as in `false-alarms-per-hour=0.5`.
SETTINGS = {
    name.replace("_", "-"): name for name in ResponsiveOptions.__struct_fields__ if name != "target"
}


def parse_options_tag(value: str) -> ResponsiveOptions | None:
    """Parse a tag's value, as in "5" or "5 false-alarms-per-hour=0.5". None for "off".

    Raises ValueError that describes the valid values.
    """
    words = value.split()
    if [it.lower() for it in words] == [OFF]:
        return None
    if not words:
        raise ValueError('it must be the wanted concurrency per copy, for example "5", or "off"')
    given: dict[str, float | int] = {"target": _parse_number(words[0], "the concurrency per copy")}
    for word in words[1:]:
        name, separator, text = word.partition("=")
        if name not in SETTINGS or not separator:
            known = ", ".join(f"{it}=..." for it in SETTINGS)
            raise ValueError(f'"{word}" is no setting; there are {known}')
        if SETTINGS[name] in given:
            raise ValueError(f"{name} is given twice")
        given[SETTINGS[name]] = _parse_number(text, name)
    return ResponsiveOptions(**given)  # type: ignore[arg-type] # checked field by field there


def build_options_tag(options: ResponsiveOptions) -> str:
    """The shortest tag value that says `options`."""
    usual = ResponsiveOptions(target=options.target)
    words = [f"{options.target:g}"]
    for name, field in SETTINGS.items():
        value = getattr(options, field)
        if value != getattr(usual, field):
            words.append(f"{name}={value:g}")
    return " ".join(words)


def read_tracking(tracking: TargetTracking, key: LoadKey) -> ResponsiveOptions | None:
    """The options of a policy that tracks `key`'s own expected concurrency. None for others.

    Raises ValueError for an invalid target value.
    """
    stats = [it.stat for it in tracking.queries]
    if len(stats) != 1 or stats[0] is None or stats[0].metric != build_expected_metric(key):
        return None
    return ResponsiveOptions(target=tracking.target_value)


def choose_options(
    own: Mapping[str, str], endpoints: Mapping[str, str], tracking: ResponsiveOptions | None
) -> ResponsiveOptions | None:
    """The options of a target: its own tag, its endpoint's, or its policy's, in that order.

    Raises ValueError for a tag that cannot be read.
    """
    for tags in (own, endpoints):
        if RESPONSIVE_TAG in tags:
            return parse_options_tag(tags[RESPONSIVE_TAG])
    return tracking


def _parse_number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f'"{text}" is no number; {what} must be one') from None
