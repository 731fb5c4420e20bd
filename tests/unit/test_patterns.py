"""Regular expressions of the product take linear time, or are listed with the reason.

Python's matcher holds the interpreter: a text of others that takes it minutes stops a process.
"""

import contextlib
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.backtracking import fault_of
from tests.pattern_places import Found, patterns_of

from hostelry.base.pip_settings import is_plain
from hostelry.containers.lmi.tools.families import SEPARATOR, TOOL_FAMILIES
from hostelry.containers.lmi.tools.json_calls import JsonCalls
from hostelry.containers.triton.model_folder import may_have_end
from hostelry.domain.transform_rules import JSON_PATH
from hostelry.domain.trouble import find_cause
from hostelry.logs.patterns.conditions import comparison
from hostelry.logs.patterns.pattern import split_fields
from hostelry.metrics.series.statistic import statistic

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "hostelry"
ADVICE = (
    "write it so that only one of its repeats can take a text, or read the text with a loop; if its"
    " input is ours or has a bound, list it in tests/unit/test_patterns.py with the reason"
)
# Each match begins at the end of the last one, and the first failure ends the reading. If a branch
# fails after a long text, no other branch takes a short part of it. So proving a match is enough.
READ_IN_TURN = {
    "base/metrics_page.py:LABEL",
    "containers/lmi/tools/families.py:TOOL_FAMILIES",
    "containers/triton/text_format.py:TOKEN",
    "logs/patterns/conditions.py:_TOKEN",
    "logs/patterns/pattern.py:_TERM",
    "metrics/query/insights.py:_TOKEN",
    "metrics/query/math_syntax.py:_TOKEN",
    "metrics/query/search.py:_PART",
    "metrics/query/search.py:_TOKEN",
    "scaling/decide/composite.py:TOKEN",
}
LISTED = {
    "api/sagemaker/serverless.py:ACCELERATED_TAG": "an image has 255 characters at most",
    "aws/constraints.py:compile_pattern": "bounds the text that a pattern is tried on",
    "aws/rest.py:_all_routes": "slashes of the service models' paths separate the repeats",
    "base/shown_paths.py:ShownPaths": "fixed texts, and names whose end no other part takes",
    "cells/request_claims.py:SIGNED": "a key id has 128 characters at most",
    "cli/declared/schema.py:_faults": "the schema is ours, and the file the user's own",
    "cli/deploy/model_formats.py:SKLEARN_VERSION": "12 characters at most precede the version",
    "containers/lmi/tools/structures.py:mark_text": "the alternatives are fixed texts",
    "containers/predictive/worker/default_tensorflow.py:ATTRIBUTE": "the service model allows the"
    " header 1,024 characters",
    "containers/lmi/http/server.py:without_host_paths": "fixed texts, without repeats",
    "domain/trouble.py:find_cause": "a fixed text, and digits that nothing else takes",
    "engine/lora/patterns.py:compile_pattern": "nothing is matched with it: RE2 matches",
    "fleet/rules/frameworks.py:TAG": "an image has 255 characters at most",
    "graph/strict_yaml.py:": "a number or truth value of which each part takes other characters",
    "logs/patterns/pattern.py:_SPLIT": "a filter pattern has 1,024 characters at most",
    "metrics/query/search.py:_WORDS": "if the check fails, one character less matches",
    "scaling/decide/alarm_events.py:POLICY": "an alarm's action has 1,024 characters at most",
}


def reason_against(found: Found) -> str:
    """Why a pattern may not be used as it is. Empty if it may be used."""
    if found.pattern is None:
        return "only the running code knows it"
    is_anchored = found.is_anchored or found.place in READ_IN_TURN
    return fault_of(found.pattern, found.flags, is_anchored=is_anchored)


def test_each_pattern_is_linear_or_listed() -> None:
    patterns = list(patterns_of(PACKAGE))
    assert len(patterns) > 200
    faults = {it: why for it in patterns if (why := reason_against(it))}
    lines = [
        f"src/hostelry/{it.place} (line {it.line}): {why}: {ADVICE}"
        for it, why in faults.items()
        if it.place not in LISTED
    ]
    assert lines == []
    assert sorted(it.place for it in faults) == sorted(LISTED), "each is listed for one pattern"
    assert READ_IN_TURN - {it.place for it in patterns} == set(), "no longer there"


SEARCHES = {
    "a repeat of anything but its end": (r'"[^"]*"', True),
    "a repeat whose end is its beginning too, and that may lack": (r"\[[^\]]*\]", False),
    "spaces before the end of a text": (r"\s*$", False),
    "spaces": (r"\s+", True),
    "a repeat after words that it can take": (r"Credential=[^/]+/", False),
    "a repeat after words that it cannot take": (r"Credential=[^/=]+/", True),
    "a pattern at the beginning of the text": (r"^\s*x", True),
    "a pattern at the beginning of a line": (r"(?m)^ *x", True),
    "a look ahead of any length": (r"a(?=.*b)", False),
    "a reference back": (r"(a)\1", False),
    "bytes": (rb"a[^b]*b", False),
}
MATCHES = {
    "adjacent repeats that take the same": (r"\d+\.?\d*", False),
    "adjacent repeats with a separator": (r"\d+(?:\.\d*)?", True),
    "adjacent repeats of other characters": (r"[a-z]+\s*;", True),
    "a repeat in a repeat": (r"(a+)+b", False),
    "a repeat in a repeat with a separator": (r"(a+,)+b", True),
    "an optional part in a repeat": (r"(a?b?)*c", False),
    "alternatives that begin alike": (r"(ab|ac)*d", True),
    "alternatives that take the same": (r"(ab|a|b)*d", False),
    "alternatives that are the same without case": (r"(?i)(ab|AB|x)*d", False),
    "a bounded repeat before a character of it": (r"[a-z]{1,60}[a-z]", True),
    "two repeats with a lower bound": (r"a{3,}a{3,}", False),
}


@pytest.mark.parametrize(("pattern", "is_linear"), SEARCHES.values(), ids=SEARCHES)
def test_a_search_is_proven_linear(pattern: str | bytes, is_linear: bool) -> None:
    assert (fault_of(pattern) == "") is is_linear


@pytest.mark.parametrize(("pattern", "is_linear"), MATCHES.values(), ids=MATCHES)
def test_a_match_is_proven_linear(pattern: str, is_linear: bool) -> None:
    assert (fault_of(pattern, is_anchored=True) == "") is is_linear


def test_patterns_are_found_with_how_they_are_used(tmp_path: Path) -> None:
    package = tmp_path / "product"
    package.mkdir()
    (package / "used.py").write_text(
        "import re\n"
        "HEAD = re.compile('a')\nPART = re.compile('b', re.I)\nSHARED = re.compile('c')\n"
        "def f(text):\n    HEAD.match(text)\n    PART.match(text, 1)\n    SHARED.match(text)\n"
        "    return re.fullmatch(r'd', text), re.sub(text, '', text)\n"
    )
    (package / "other.py").write_text("from product.used import (\n    SHARED,\n)\n")
    found = [(it.place, it.pattern, it.flags, it.is_anchored) for it in patterns_of(package)]
    assert found == [
        ("used.py:HEAD", "a", 0, True),
        ("used.py:PART", "b", re.IGNORECASE, False),
        ("used.py:SHARED", "c", 0, False),
        ("used.py:f", "d", 0, True),
        ("used.py:f", None, 0, False),
    ]


def refused(read: Callable[[str], object], text: str) -> None:
    with contextlib.suppress(ValueError):
        read(text)


def call_head(family: str) -> Callable[[str], object]:
    parser = TOOL_FAMILIES[family].parser
    assert isinstance(parser, JsonCalls)
    assert parser.head is not None
    return parser.head.fullmatch


def python_model(text: str) -> bool:
    return may_have_end([text])


READINGS: dict[str, tuple[Callable[[str], object], str, str, str]] = {
    "brackets of a log line that nothing closes": (split_fields, "", "[ ", ""),
    "closed brackets of a log line without spaces": (split_fields, "", "[]", ""),
    "quotes of a log line": (split_fields, "", '"" ', '"'),
    "digits in a condition on log lines": (partial(comparison, "="), "", "1", "x"),
    "spaces after a requirement's name": (is_plain, "a", " ", "!"),
    "letters of a cause of failure": (find_cause, "", "a", ""),
    "spaces of a path into JSON": (JSON_PATH.fullmatch, "$[", " ", "!"),
    "spaces of a statistic": (partial(refused, statistic), "TM(", " ", "!"),
    "spaces after a tool's name": (call_head("mistral"), "a", " ", "!"),
    "spaces in a tool's name": (call_head("deepseek_v3"), f"function{SEPARATOR}", " ", "!"),
    "spaces before a tool's name": (call_head("deepseek_v31"), "", " ", "!"),
    "spaces in the head of a Python model": (python_model, "class TritonPythonModel(", " ", "!"),
}


def seconds(read: Callable[[str], object], text: str) -> float:
    """The processor time of one reading, the best of several."""

    def once() -> float:
        began = time.thread_time()
        read(text)
        return time.thread_time() - began

    return min(once() for _ in range(5))


@pytest.mark.parametrize(("read", "start", "repeated", "end"), READINGS.values(), ids=READINGS)
def test_twice_the_text_takes_at_most_three_times_as_long(
    read: Callable[[str], object], start: str, repeated: str, end: str
) -> None:
    short, long = (start + repeated * count + end for count in (30_000, 60_000))
    # For a millisecond, noise can exceed a factor of two. A quadratic reading takes seconds.
    assert seconds(read, long) < 3 * seconds(read, short) + 0.02
