"""SEARCH: which metrics a search text finds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostelry.domain.metric import Metric
from hostelry.metrics.query.math_syntax import ExpressionError
from hostelry.metrics.query.search import parse_search, split_words

METRICS = {
    "cpu a": Metric.of("AWS/EC2", "CPUUtilization", {"InstanceId": "i-a"}),
    "cpu b": Metric.of("AWS/EC2", "CPUUtilization", {"InstanceId": "i-b"}),
    "net a": Metric.of("AWS/EC2", "NetworkPacketsIn", {"InstanceId": "i-a"}),
    "load e": Metric.of(
        "AWS/SageMaker", "ConcurrentRequestsPerCopy", {"InferenceComponentName": "llama-3 8B"}
    ),
    "load f": Metric.of(
        "AWS/SageMaker", "ConcurrentRequestsPerCopy", {"InferenceComponentName": "mistral"}
    ),
    "calls": Metric.of(
        "AWS/SageMaker", "Invocations", {"EndpointName": "prod", "VariantName": "main"}
    ),
}
CPU = {"cpu a", "cpu b"}
EC2 = {"cpu a", "cpu b", "net a"}
LOAD = {"load e", "load f"}


# Source: user guide, "CloudWatch search expression syntax" and "search expression examples".
@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(
            '{AWS/EC2,InstanceId} MetricName="CPUUtilization"', CPU, id="a name in quotes"
        ),
        pytest.param("{AWS/EC2, InstanceId} CPUUtilization", CPU, id="a name as it is"),
        pytest.param("{AWS/EC2,InstanceId} utilization", CPU, id="a word, in any case"),
        pytest.param("{AWS/EC2,InstanceId} Util", set(), id="half a word matches nothing"),
        pytest.param(
            '{AWS/EC2,InstanceId} MetricName="utilization"', set(), id="quotes: all of it"
        ),
        pytest.param("{AWS/EC2,InstanceId}", EC2, id="a schema alone"),
        pytest.param("{AWS/EC2}", set(), id="a schema is exact: no dimension"),
        pytest.param("{AWS/SageMaker, VariantName, EndpointName}", {"calls"}, id="in any order"),
        pytest.param('{"AWS/SageMaker", "InferenceComponentName"}', LOAD, id="quoted schema"),
        pytest.param('Namespace="AWS/EC2" packets', {"net a"}, id="no schema, two terms"),
        pytest.param("packets OR mistral", {"net a", "load f"}, id="either"),
        pytest.param("CPU AND a", {"cpu a"}, id="both, said"),
        pytest.param("CPU a", {"cpu a"}, id="both, unsaid"),
        pytest.param("{AWS/EC2,InstanceId} NOT CPU", {"net a"}, id="not"),
        pytest.param("{AWS/EC2,InstanceId} NOT (CPU OR packets)", set(), id="neither"),
        pytest.param("CPU NOT b OR mistral", {"cpu a", "load f"}, id="AND binds tighter than OR"),
        pytest.param("CPU (a OR b)", CPU, id="parentheses"),
        pytest.param('InstanceId="i-a"', {"cpu a", "net a"}, id="a dimension's value"),
        pytest.param("InstanceId=a", {"cpu a", "net a"}, id="a word of a dimension's value"),
        pytest.param(
            'MetricName=("CPUUtilization" OR "Invocations")', CPU | {"calls"}, id="of two"
        ),
        pytest.param('"i-b"', {"cpu b"}, id="a quoted value anywhere"),
        pytest.param('InferenceComponentName="llama-3 8B"', {"load e"}, id="a blank"),
        pytest.param("8b", {"load e"}, id="a part of a value"),
        pytest.param("EndpointName=prod VariantName=main", {"calls"}, id="two dimensions"),
        pytest.param("", set(METRICS), id="nothing asked: all"),
    ],
)
def test_a_search_finds(text: str, found: set[str]) -> None:
    search = parse_search(text)
    assert {
        name
        for name, metric in METRICS.items()
        if search.fits(metric)
        and search.namespace in (None, metric.namespace)
        and search.name in (None, metric.name)
        and (
            search.dimensions is None
            or set(search.dimensions) == {name for name, _ in metric.dimensions}
        )
    } == found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param('{N,d} MetricName="x"', "x", id="one name"),
        pytest.param('a MetricName="x" b', "x", id="among other terms"),
        pytest.param("MetricName=x", None, id="a word of a name"),
        pytest.param('MetricName="x" OR a', None, id="or something else"),
        pytest.param('NOT MetricName="x"', None, id="any but that"),
        pytest.param('MetricName=("x" OR "y")', None, id="one of two"),
        pytest.param('a MetricName "x"', None, id="a word that happens to be MetricName"),
    ],
)
def test_a_search_for_one_name_asks_the_store_for_that_name(text: str, name: str | None) -> None:
    assert parse_search(text).filter(0.0).name == name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CPUUtilization", {"cpu", "utilization", "cpuutilization"}),
        ("NetworkPacketsIn", {"network", "packets", "in", "networkpacketsin"}),
        ("i-0a1b", {"i", "0", "a", "1", "b", "0a1b", "i-0a1b"}),
        ("AWS/SageMaker", {"aws", "sage", "maker", "sagemaker", "aws/sagemaker"}),
        ("Invocation4XXErrors", {"invocation", "4", "xx", "errors", "invocation4xxerrors"}),
    ],
)
def test_names_are_split_into_words(text: str, words: set[str]) -> None:
    assert split_words(text) == words


@pytest.mark.parametrize(
    "text",
    ["(", "a AND", "a OR", "NOT", "a )", "x=", "x=(a", "x=(a b)", "=a", "{", "{}", "{a", "{a,,b}",
     '"', ":aws.AccountId=1", "a " * 600, "(" * 60 + "a" + ")" * 60, "NOT " * 99 + "a"],
)  # fmt: skip
def test_what_is_no_search_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_search(text)


@settings(max_examples=200, deadline=None)
@given(st.text('aB1 "(){}=,:\\ORANDT', max_size=60))
def test_any_text_is_a_search_or_refused(text: str) -> None:
    try:
        search = parse_search(text)
    except ExpressionError as error:
        assert str(error)  # noqa: PT017
    else:
        assert [search.fits(it) for it in METRICS.values()].count(True) <= len(METRICS)
