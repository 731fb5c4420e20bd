"""Templates of requests: rendered apart, within limits."""

from dataclasses import replace

import pytest

from hostelry.base.clock import ManualClock
from hostelry.containers.lmi.refusal import Refusal
from hostelry.containers.lmi.request.template_process import LIMITS, render_apart

CLOCK = ManualClock(86_400.0 * 365)
QUICK = replace(LIMITS, render_s=0.5)
PATIENT = replace(LIMITS, render_s=60.0)
DOUBLED = "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(64) %}{% set n.s = n.s ~ n.s %}"


def test_a_template_of_a_request_sees_the_variables_and_the_time() -> None:
    text = render_apart("{{ a.b }} {{ strftime_now('%Y') }}", {"a": {"b": "x"}}, CLOCK)
    assert text in ("x 1970", "x 1971")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param(
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "more than",
            id="loops without end",
        ),
        pytest.param(DOUBLED + "{% endfor %}{{ n.s }}", "memory", id="a text that doubles"),
        pytest.param("{{ 'x' * 999999999999 }}", "memory", id="a long text at once"),
        pytest.param("{{ 'x' * 9999999 }}", "writes more than", id="more text than is read"),
        pytest.param("{{ '%999999999d' % 1 }}", "memory", id="a wide number"),
        pytest.param("{{ 9 ** (9 ** 9) }}", "more than", id="a number without end"),
        pytest.param("{% for %}", "expression", id="no template"),
        pytest.param("{{ raise_exception('not so') }}", "not so", id="one that refuses"),
        pytest.param("{{ ''.__class__.__mro__ }}", "unsafe", id="Python's own attributes"),
        pytest.param("{{ namespace(__class__=1) }}", "underscore", id="attributes of a namespace"),
        pytest.param("{% include '/etc/passwd' %}", "no loader", id="a file"),
    ],
)
def test_a_hostile_template_of_a_request(template: str, message: str) -> None:
    limits = QUICK if message == "more than" else PATIENT  # whose own limit is met, however slowly
    with pytest.raises(Refusal, match=message) as refused:
        render_apart(template, {}, CLOCK, limits)
    assert refused.value.param == "chat_template"
    assert render_apart("{{ 1 }}", {}, CLOCK) == "1"
