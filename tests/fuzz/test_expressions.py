"""Texts with separate grammars give a value or a refusal, in a time that does not explode."""

import pytest
from tests.fuzz.conftest import Cases
from tests.fuzz.mutation import mutated_text

from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.metric import Metric, MetricQuery, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.query.math_syntax import ExpressionError
from hostelry.metrics.query.queries import check_queries, evaluate
from hostelry.metrics.query.search import parse_search
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.scaling.decide.composite import RuleError, is_true, list_children
from hostelry.scaling.decide.composite import parse as parse_rule
from hostelry.scaling.decide.schedule import (
    Window,
    find_newest_firing,
    find_next_firing,
    get_time_zone,
    parse_schedule,
)

HERE = Scope("123456789012", "us-west-2")
T = 1_700_006_400.0
METRICS = tuple(Metric.of("Mine", name, {"Endpoint": "e"}) for name in ("cpu", "net in", "x"))
EXPRESSIONS = (
    "m1 + m2 * 2 ^ -1",
    "SUM([m1, m2]) / MAX(METRICS())",
    "IF(m1 > 1 AND m2 <= 3, m1, FILL(m2, LINEAR))",
    "SORT(METRICS(), AVG, DESC, 2)",
    "SLICE(REMOVE_EMPTY(METRICS('m')), 0, 1)",
    'SUM(SEARCH(\'{Mine,Endpoint} MetricName="cpu"\', "Sum", 60))',
    "RATE(m1) + PERIOD(m2) - RUNNING_SUM(m1)",
    "DIFF(LOG10(ABS(m1))) || HOUR(m1) == 3",
)
MATH_WORDS = (
    *("(", ")", "[", "]", ",", "+", "-", "*", "/", "^", "<", "==", "&&", "AND", "'", '"', " "),
    *("m1", "m2", "e", "9", "1e308", "-0", "0.1", "METRICS()", "SUM(", "FILL(", "SEARCH(", "IF("),
    *(
        "(" * 60,
        "-" * 60,
        "[" * 60,
        "^9" * 9,
        "REPEAT",
        "\u0660",
        "\u00e9",
        "TIME_SERIES(",
        "EPOCH(",
    ),
)
SEARCHES = (
    '{Mine,Endpoint} MetricName="cpu" OR net',
    '{"Mine", "Endpoint"} NOT (x AND cpu)',
    'Namespace="Mine" cpu a b c',
)
SEARCH_WORDS = (
    *(
        "{",
        "}",
        '"',
        "(",
        ")",
        ",",
        "=",
        " OR ",
        " AND ",
        " NOT ",
        "cpu",
        "Mine",
        "MetricName",
        ":",
    ),
    *(
        "(" * 60,
        "NOT " * 60,
        "a " * 60,
        "\\",
        "'",
        "*",
        "\u0130",
        "\u00e9",
        "\x00",
        "camelCaseWords",
    ),
)
SCHEDULES = (
    "cron(0 10 * * ? *)",
    "cron(15/5 8-18 L 1,6-12/2 ? 2024-2030)",
    "cron(0 0 ? * MON#2 *)",
    "cron(0 0 LW FEB ? 2199)",
    "rate(5 minutes)",
    "at(2026-11-22T10:00:00)",
)
SCHEDULE_WORDS = (
    *("*", "?", "L", "W", "LW", "#", "-", ",", "/", " ", "0", "59", "60", "31", "2199", "99999999"),
    *("SUN", "6L", "1#5", "15W", "FEB", "cron(", "rate(", "at(", ")", "T", ":", "\u0663", "1-5/0"),
)
ZONES = ("UTC", "America/St_Johns", "Africa/Casablanca", "Pacific/Apia", "Australia/Lord_Howe")
RULES = (
    'ALARM("a") AND NOT (OK(b) OR INSUFFICIENT_DATA(c))',
    "TRUE OR FALSE AND ALARM(arn:aws:cloudwatch:us-west-2:123456789012:alarm:x)",
)
RULE_WORDS = (
    *("(", ")", "ALARM(", "OK(a)", "NOT ", " AND ", " OR ", "TRUE", '"', "a", ",", "\\", "\u00e9"),
    *("(" * 60, "NOT " * 60, "ALARM(a) OR " * 30, "arn:aws:cloudwatch:", "\n", "\x00"),
)


@pytest.fixture(scope="module")
def store() -> MemoryMetrics:
    store = MemoryMetrics(ManualClock(T + 300))
    for number, metric in enumerate(METRICS):
        for minute in range(5):
            value = float(number * minute - 1)
            store.record(HERE, [Sample(metric=metric, at=T + 60 * minute, values=(value,))])
    return store


def test_metric_math_is_a_value_or_refused(cases: Cases, store: MemoryMetrics) -> None:
    known = tuple(
        MetricQuery(id=f"m{number}", stat=MetricStat(metric=metric, period_s=60, statistic="Sum"))
        for number, metric in enumerate(METRICS, start=1)
    )
    for random in cases(5_000):
        text = mutated_text(random.choice(EXPRESSIONS), random, MATH_WORDS)
        queries = (*known, MetricQuery(id="e", expression=text))
        try:
            check_queries(queries)
            series = evaluate(store, HERE, queries, T, T + 300)["e"]
        except ServiceError as error:
            assert error.http_status == 400  # noqa: PT017 - the other outcome is a value
            continue
        assert all(abs(it.value) < float("inf") for line in series for it in line.points)


def test_a_search_finds_or_is_refused(cases: Cases, store: MemoryMetrics) -> None:
    for random in cases(10_000):
        text = mutated_text(random.choice(SEARCHES), random, SEARCH_WORDS)
        try:
            search = parse_search(text)
        except ExpressionError:
            continue
        assert set(store.find(HERE, search.filter(T + 300))) <= set(METRICS)


def test_a_schedule_fires_later_or_is_refused(cases: Cases) -> None:
    for random in cases(6_000):
        text = mutated_text(random.choice(SCHEDULES), random, SCHEDULE_WORDS)
        try:
            schedule = parse_schedule(text)
        except ValueError:
            continue
        zone, since = get_time_zone(random.choice(ZONES)), random.uniform(0, 7e9)
        window = Window(created_at=since, start_at=random.choice((None, since + 1e6)))
        following = find_next_firing(schedule, zone, since, window)
        assert following is None or following > since
        newest = find_newest_firing(schedule, zone, since, since + 1e7, window)
        assert newest is None or since < newest <= since + 1e7


def test_a_composite_rule_holds_or_is_refused(cases: Cases) -> None:
    for random in cases(10_000):
        text = mutated_text(random.choice(RULES), random, RULE_WORDS)
        try:
            rule = parse_rule(text)
        except RuleError:
            continue
        assert is_true(rule, {}) in (True, False)
        assert all(list_children(rule))
