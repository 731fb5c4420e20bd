"""Page keys: equal exactly when contents, salt and everything before are equal."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.engine.pages.prefix import build_salt, hash_page, hash_pages, hash_salt

Ids = tuple[str, str | None] | tuple[str, str | None, str]

TOKENS = st.lists(st.integers(0, 5), max_size=24)
IDS = st.text(max_size=6)
BASE = build_salt("sha256-base", None)
GOLDEN = ["4f82911ee1aefcab", "356f36c4c5b76e29"]


@cases(
    "num_tokens, page_tokens, expected",
    case("no tokens have no keys", 0, 4, 0),
    case("a page that is not complete has no key", 3, 4, 0),
    case("a page that is just complete has one", 4, 4, 1),
    case("the tokens after the last complete page do not count", 11, 4, 2),
    case("a page may be one token", 3, 1, 3),
)
def test_only_complete_pages_have_keys(num_tokens: int, page_tokens: int, expected: int) -> None:
    assert len(hash_pages(BASE, list(range(num_tokens)), page_tokens)) == expected


@given(first=TOKENS, second=TOKENS, page_tokens=st.integers(1, 5))
def test_keys_are_equal_exactly_as_far_as_the_tokens_are(
    first: list[int], second: list[int], page_tokens: int
) -> None:
    keys = zip(
        hash_pages(BASE, first, page_tokens), hash_pages(BASE, second, page_tokens), strict=False
    )
    for number, (one, other) in enumerate(keys, start=1):
        end = number * page_tokens
        assert (one == other) == (first[:end] == second[:end])


@given(tokens=st.lists(st.integers(0, 2**32 - 1), max_size=40), page_tokens=st.integers(1, 7))
def test_keys_made_one_by_one_are_the_same(tokens: list[int], page_tokens: int) -> None:
    parent = hash_salt(BASE)
    one_by_one = []
    for start in range(0, len(tokens) - page_tokens + 1, page_tokens):
        parent = hash_page(parent, tokens[start : start + page_tokens])
        one_by_one.append(parent)
    assert hash_pages(BASE, tuple(tokens), page_tokens) == one_by_one


@given(first=st.tuples(IDS, st.none() | IDS), second=st.tuples(IDS, st.none() | IDS))
def test_two_contents_have_one_salt_only_when_both_ids_are_equal(first: Ids, second: Ids) -> None:
    assert (build_salt(*first) == build_salt(*second)) == (first == second)


@cases(
    "one, other",
    case("base alone and an adapter", ("base", None), ("base", "x")),
    case("two versions of an adapter", ("base", "x1"), ("base", "x2")),
    case("an adapter on two bases", ("base1", "x"), ("base2", "x")),
    case("no adapter and one with an empty id", ("base", None), ("base", "")),
    case("a request with a salt", ("base", None), ("base", None, "salt")),
    case("two salts", ("base", "x", "s"), ("base", "x", "t")),
    case("a salt like an adapter's mark", ("base", "x", "+"), ("base", "+x", "")),
    case("ids that are equal when put together", ("ab", "c"), ("a", "bc")),
    case("a base that is named like a pair", ("a+b", None), ("a", "b-")),
)
def test_other_contents_never_share_a_page(one: Ids, other: Ids) -> None:
    tokens = list(range(8))
    keys = hash_pages(build_salt(*one), tokens, 4)
    others = hash_pages(build_salt(*other), tokens, 4)
    assert not set(keys) & set(others)


def test_the_same_tokens_at_two_places_have_two_keys() -> None:
    keys = hash_pages(BASE, [7, 7, 7, 7, 7, 7], 2)
    assert len(set(keys)) == 3


def test_the_size_of_a_page_is_part_of_its_key() -> None:
    assert not set(hash_pages(BASE, [1] * 8, 2)) & set(hash_pages(BASE, [1] * 8, 4))


def test_keys_are_the_same_in_every_process() -> None:
    assert [key.hex()[:16] for key in hash_pages(b"salt", [1, 2, 3, 4], 2)] == GOLDEN


@cases(
    "tokens, page_tokens, message",
    case("pages without tokens", [1], 0, "page_tokens is 0"),
    case("pages of a negative size", [1], -3, "page_tokens is -3"),
    case("a negative token", [-1], 1, "token ids must be whole numbers in"),
    case("a token too large", [2**32], 1, "token ids must be whole numbers in"),
    case("half a token", [0.5], 1, "token ids must be whole numbers in"),
    case("a token that is text", ["1"], 1, "token ids must be whole numbers in"),
)
def test_what_is_no_token_is_refused(tokens: Sequence[Any], page_tokens: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hash_pages(BASE, tokens, page_tokens)
