"""SEARCH: which metrics a search text finds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import case, cases

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
@cases(
    "text, found",
    case("a name in quotes", '{AWS/EC2,InstanceId} MetricName="CPUUtilization"', CPU),
    case("a name as it is", "{AWS/EC2, InstanceId} CPUUtilization", CPU),
    case("a word, in any case", "{AWS/EC2,InstanceId} utilization", CPU),
    case("half a word matches nothing", "{AWS/EC2,InstanceId} Util", set()),
    case("quotes: all of it", '{AWS/EC2,InstanceId} MetricName="utilization"', set()),
    case("a schema alone", "{AWS/EC2,InstanceId}", EC2),
    case("a schema is exact: no dimension", "{AWS/EC2}", set()),
    case("in any order", "{AWS/SageMaker, VariantName, EndpointName}", {"calls"}),
    case("quoted schema", '{"AWS/SageMaker", "InferenceComponentName"}', LOAD),
    case("no schema, two terms", 'Namespace="AWS/EC2" packets', {"net a"}),
    case("either", "packets OR mistral", {"net a", "load f"}),
    case("both, said", "CPU AND a", {"cpu a"}),
    case("both, unsaid", "CPU a", {"cpu a"}),
    case("not", "{AWS/EC2,InstanceId} NOT CPU", {"net a"}),
    case("neither", "{AWS/EC2,InstanceId} NOT (CPU OR packets)", set()),
    case("AND binds tighter than OR", "CPU NOT b OR mistral", {"cpu a", "load f"}),
    case("parentheses", "CPU (a OR b)", CPU),
    case("a dimension's value", 'InstanceId="i-a"', {"cpu a", "net a"}),
    case("a word of a dimension's value", "InstanceId=a", {"cpu a", "net a"}),
    case("of two", 'MetricName=("CPUUtilization" OR "Invocations")', CPU | {"calls"}),
    case("a quoted value anywhere", '"i-b"', {"cpu b"}),
    case("a blank", 'InferenceComponentName="llama-3 8B"', {"load e"}),
    case("a part of a value", "8b", {"load e"}),
    case("two dimensions", "EndpointName=prod VariantName=main", {"calls"}),
    case("nothing asked: all", "", set(METRICS)),
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


@cases(
    "text, name",
    case("one name", '{N,d} MetricName="x"', "x"),
    case("among other terms", 'a MetricName="x" b', "x"),
    case("a word of a name", "MetricName=x", None),
    case("or something else", 'MetricName="x" OR a', None),
    case("any but that", 'NOT MetricName="x"', None),
    case("one of two", 'MetricName=("x" OR "y")', None),
    case("a word that happens to be MetricName", 'a MetricName "x"', None),
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
