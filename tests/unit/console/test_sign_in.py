from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.console import sign_in
from hostelry.console.sign_in import (
    ACTS_S,
    FAILURES_S,
    IDLE_S,
    LINK_S,
    MAX_FAILURES,
    MAX_LINKS,
    MAX_SESSIONS,
    SESSION_S,
    ConsoleSession,
    SignInBook,
    get_digest,
)

NOW = 1000.0
SESSION = ConsoleSession(
    id="s",
    cookie_digest=get_digest("cookie"),
    token_digest=get_digest("token"),
    made_at=NOW,
    seen_at=NOW,
    acts=True,
)
BOOK = SignInBook(sessions=(SESSION,))


@cases(
    "code, later_s, opens",
    case("at once", "code", 0.0, True),
    case("in time", "code", LINK_S - 1, True),
    case("too late", "code", LINK_S, False),
    case("a code that no link has", "other", 0.0, False),
    case("no code", "", 0.0, False),
)
def test_a_link_opens_one_session(code: str, later_s: float, opens: bool) -> None:
    book = sign_in.add_link(SignInBook(), "code", acts=True, now=NOW)
    after, link = sign_in.take_link(book, code, NOW + later_s)
    assert (link is not None) is opens
    assert (after is book) is (code != "code")  # a wrong code is not written to disk
    assert sign_in.take_link(after, code, NOW + later_s)[1] is None
    if link is not None:
        assert link.acts


def test_links_that_pile_up_make_room() -> None:
    book = SignInBook()
    for number in range(MAX_LINKS + 1):
        book = sign_in.add_link(book, str(number), acts=False, now=NOW)
    assert len(book.links) == MAX_LINKS
    assert sign_in.take_link(book, "0", NOW)[1] is None
    assert sign_in.take_link(book, str(MAX_LINKS), NOW)[1] is not None
    assert len(sign_in.add_link(book, "late", acts=False, now=NOW + LINK_S).links) == 1


@cases(
    "cookie, token, later_s, known",
    case("both are shown", "cookie", "token", 0.0, True),
    case("used within the idle time", "cookie", "token", IDLE_S - 1, True),
    case("idle for too long", "cookie", "token", IDLE_S, False),
    case("a cookie without its token", "cookie", "other", 0.0, False),
    case("a token without its cookie", "other", "token", 0.0, False),
    case("its digests", SESSION.cookie_digest, SESSION.token_digest, 0.0, False),
    case("nothing", "", "", 0.0, False),
)
def test_who_a_session_is(cookie: str, token: str, later_s: float, known: bool) -> None:
    found = sign_in.find_session(BOOK, cookie, token, NOW + later_s)
    assert (found is not None) is known


def test_a_session_ends_though_it_is_used() -> None:
    used = BOOK
    for hour in range(1, int(SESSION_S / 3600) + 1):
        at = NOW + hour * 3600.0
        found = sign_in.find_session(used, "cookie", "token", at)
        assert (found is None) is (hour * 3600.0 >= SESSION_S)
        if found is not None:
            used = sign_in.use_link(used, found, at)


def test_acts_end_before_the_session() -> None:
    assert SESSION.may_act(NOW + ACTS_S - 1)
    assert not SESSION.may_act(NOW + ACTS_S)
    assert not replace(SESSION, acts=False).may_act(NOW)


def test_what_was_used_just_now_is_not_written_again() -> None:
    assert sign_in.use_link(BOOK, SESSION, NOW + 1) is BOOK
    assert sign_in.use_link(BOOK, SESSION, NOW + 60).sessions[0].seen_at == NOW + 60


def test_a_session_that_signed_out_is_unknown() -> None:
    book = sign_in.without_session(BOOK, SESSION)
    assert sign_in.find_session(book, "cookie", "token", NOW) is None


def test_the_session_used_longest_ago_makes_room() -> None:
    book = SignInBook()
    for number in range(MAX_SESSIONS + 1):
        session = replace(SESSION, id=str(number), seen_at=NOW + number)
        book = sign_in.add_session(book, session, NOW + number)
    assert len(book.sessions) == MAX_SESSIONS
    assert "0" not in {it.id for it in book.sessions}


def test_keys_are_tried_so_often_and_no_more() -> None:
    book = SignInBook()
    for number in range(MAX_FAILURES):
        assert sign_in.wait_s(book, NOW + number) == 0
        book = sign_in.add_failure(book, NOW + number)
    after = NOW + MAX_FAILURES
    assert sign_in.wait_s(book, after) == FAILURES_S - MAX_FAILURES
    assert sign_in.wait_s(book, NOW + FAILURES_S) == 0
