from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.console.delta import apply_patch, diff, without_nulls

leaves = st.none() | st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=12,
)
documents = st.dictionaries(st.sampled_from("abc"), values).map(without_nulls)


@given(documents, documents)
def test_a_patch_makes_the_later_document_of_the_earlier(before: Any, after: Any) -> None:
    assert apply_patch(before, diff(before, after)) == after


@given(documents)
def test_equal_documents_have_an_empty_patch(document: Any) -> None:
    assert diff(document, document) == {}


@cases(
    "before, after, patch",
    case("a value changes", {"a": 1}, {"a": 2}, {"a": 2}),
    case("a member goes", {"a": 1, "b": 1}, {"b": 1}, {"a": None}),
    case("inner", {"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "c": 2}}, {"a": {"b": 3}}),
    case("an array is replaced whole", {"a": [1, 2]}, {"a": [1, 3]}, {"a": [1, 3]}),
    case("true is not 1", {"a": 1}, {"a": True}, {"a": True}),
    case("the last member goes", {"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
    case("an empty object comes", {}, {"a": {}}, {"a": {}}),
)
def test_the_patch_of_a_change(before: Any, after: Any, patch: Any) -> None:
    assert diff(before, after) == patch
