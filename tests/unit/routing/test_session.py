from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import CopyRoute, VariantRoute
from hostelry.routing.session import (
    DEFAULT_LIFETIME_S,
    MAX_LIFETIME_S,
    copy_mark,
    marked_copy,
    marked_variant,
    opened_session,
)

NOW = 1_700_000_000.0
AT_NOON = 1_701_432_000.0  # 2023-12-01T12:00:00Z


@cases(
    "header, session_id, expires_at",
    case("as the API says", "s-1; Expires=2023-12-01T12:00:00Z", "s-1", AT_NOON),
    case("without a zone: UTC", "s-1;expires=2023-12-01T12:00:00", "s-1", AT_NOON),
    case("with a zone", "s-1; Expires=2023-12-01T14:00:00+02:00", "s-1", AT_NOON),
    case("beside other fields", "s-1; Path=/; Expires=2023-12-01T12:00:00Z", "s-1", AT_NOON),
    case("without a time", " s-1 ", "s-1", NOW + DEFAULT_LIFETIME_S),
    case("no time at all", "s-1; Expires=soon", "s-1", NOW + DEFAULT_LIFETIME_S),
    case("an empty time", "s-1; Expires=", "s-1", NOW + DEFAULT_LIFETIME_S),
    case("in years", "s-1; Expires=2026-01-01T12:00:00Z", "s-1", NOW + MAX_LIFETIME_S),
    case("long gone", "s-1; Expires=1970-01-01T00:00:00Z", "s-1", 0.0),
)  # fmt: skip
def test_what_a_container_opens(header: str, session_id: str, expires_at: float) -> None:
    opened = opened_session(header, NOW)
    assert opened is not None
    assert (opened.id, opened.expires_at) == (session_id, expires_at)


@cases(
    "header",
    case("nothing", ""),
    case("no id", "; Expires=2023-12-01T12:00:00Z"),
    case("what only clients say", "NEW_SESSION"),
    case("an id that no client could send", "x" * 257),
)
def test_what_opens_nothing(header: str) -> None:
    assert opened_session(header, NOW) is None


@given(st.text())
def test_any_session_header_is_read_or_ignored(header: str) -> None:
    opened = opened_session(header, NOW)
    assert opened is None or header.strip().startswith(opened.id)


def copy(name: str) -> CopyRoute:
    return CopyRoute(id=name, address="http://127.0.0.1:1")


def test_a_mark_finds_its_copy_and_no_other() -> None:
    copies = [copy("c-1"), copy("c-2")]
    assert marked_copy(copies, copy_mark("c-2")) == copies[1]
    assert marked_copy(copies, copy_mark("c-3")) is None


def test_a_mark_finds_the_variant_of_its_copy() -> None:
    variants = [
        VariantRoute(name=name, weight=1.0, routing=RoutingStrategy.RANDOM, copies=(copy(name),))
        for name in ("blue", "green")
    ]
    assert marked_variant(variants, copy_mark("green")) is variants[1]
    assert marked_variant(variants, copy_mark("red")) is None


@given(st.text())
def test_marks_are_stable_and_fit_a_signed_word(copy_id: str) -> None:
    assert 0 <= copy_mark(copy_id) < 1 << 63
    assert copy_mark(copy_id) == copy_mark(copy_id)
