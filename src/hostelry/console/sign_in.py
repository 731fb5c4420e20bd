"""Access to the console: one-time links, sessions, and failed attempts. Pure.

A browser shows a secret, and the console keeps only its digest. Instants are seconds of one clock.

| a browser shows | a link's code | a session's cookie and token |
| --- | --- | --- |
| known, in time | a session, and the link is used up | the session |
| known, too late | refused, and forgotten | refused, and forgotten |
| unknown | refused | refused |

The cookie alone is not enough. Browsers send it to every port of the host, so that another local
user's server may receive it. The page keeps the token for its own address and port.
"""

import hashlib

import msgspec
from msgspec.structs import replace

LINK_S = 300.0
IDLE_S = 12 * 3600.0
SESSION_S = 7 * 86400.0
ACTS_S = 8 * 3600.0  # a session that may act can do so for this time
SEEN_EVERY_S = 60.0  # the last use of a session is noted at most this often
MAX_LINKS = 20
MAX_SESSIONS = 100
MAX_FAILURES = 10  # wrong keys within FAILURES_S
FAILURES_S = 60.0


class SignInLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that is not used yet."""

    digest: str
    made_at: float
    acts: bool


class ConsoleSession(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that has signed in. `id` names it in the audit log, and is not a secret."""

    id: str
    cookie_digest: str
    token_digest: str
    made_at: float
    seen_at: float
    acts: bool

    def may_act(self, now: float) -> bool:
        """True if the session may act."""
        return self.acts and now - self.made_at < ACTS_S

    def is_over(self, now: float) -> bool:
        """True if the session has been idle too long, or is too old."""
        return now - self.seen_at >= IDLE_S or now - self.made_at >= SESSION_S


class SignInBook(msgspec.Struct, frozen=True, kw_only=True):
    """All links and sessions, and the times at which keys were refused."""

    links: tuple[SignInLink, ...] = ()
    sessions: tuple[ConsoleSession, ...] = ()
    failures: tuple[float, ...] = ()


def get_digest(secret: str) -> str:
    """Return the stored digest of a secret of 32 random bytes."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def add_link(book: SignInBook, code: str, *, acts: bool, now: float) -> SignInBook:
    """Add a link to `book`. If there are too many, the oldest are removed."""
    link = SignInLink(digest=get_digest(code), made_at=now, acts=acts)
    links = [it for it in book.links if now - it.made_at < LINK_S]
    return replace(book, links=(*links, link)[-MAX_LINKS:])


def take_link(book: SignInBook, code: str, now: float) -> tuple[SignInBook, SignInLink | None]:
    """Take the link of `code` out of `book`. None if it is unknown or too old."""
    wanted = get_digest(code)
    found = next((it for it in book.links if it.digest == wanted), None)
    if found is None:
        return book, None  # the same object, so that a wrong code causes no write to disk
    kept = tuple(it for it in book.links if it is not found)
    return replace(book, links=kept), None if now - found.made_at >= LINK_S else found


def add_session(book: SignInBook, session: ConsoleSession, now: float) -> SignInBook:
    """Add a session to `book`. If there are too many, those used longest ago are removed."""
    living = sorted((it for it in book.sessions if not it.is_over(now)), key=lambda it: it.seen_at)
    return replace(book, sessions=(*living, session)[-MAX_SESSIONS:])


def find_session(book: SignInBook, cookie: str, token: str, now: float) -> ConsoleSession | None:
    """Find the session of this cookie and token. None if it does not exist, or is over."""
    wanted = get_digest(cookie), get_digest(token)
    found = next(
        (it for it in book.sessions if (it.cookie_digest, it.token_digest) == wanted), None
    )
    return None if found is None or found.is_over(now) else found


def use_link(book: SignInBook, session: ConsoleSession, now: float) -> SignInBook:
    """Note the use of `session` in `book`. Returns the same object if it is noted already."""
    if now - session.seen_at < SEEN_EVERY_S:
        return book
    later = replace(session, seen_at=now)
    return replace(book, sessions=tuple(later if it == session else it for it in book.sessions))


def without_session(book: SignInBook, session: ConsoleSession) -> SignInBook:
    """Remove a session that has signed out from `book`."""
    return replace(book, sessions=tuple(it for it in book.sessions if it.id != session.id))


def wait_s(book: SignInBook, now: float) -> float:
    """Return the seconds until a key may be tried again, or 0."""
    recent = [it for it in book.failures if now - it < FAILURES_S]
    return 0.0 if len(recent) < MAX_FAILURES else FAILURES_S - (now - recent[0])


def add_failure(book: SignInBook, now: float) -> SignInBook:
    """Count a refused key in `book`."""
    recent = [it for it in book.failures if now - it < FAILURES_S]
    return replace(book, failures=(*recent, now)[-MAX_FAILURES:])
