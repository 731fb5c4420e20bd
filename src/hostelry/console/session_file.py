"""Sessions and sign-in links on disk, so that they survive a restart of the console."""

import logging
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from hostelry.base.files import write_whole
from hostelry.base.json import decode
from hostelry.console import sign_in
from hostelry.console.sign_in import ConsoleSession, SignInBook

LOG = logging.getLogger(__name__)
SECRET_BYTES = 32


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A new session with its secrets, which only its browser keeps."""

    session: ConsoleSession
    cookie: str
    token: str


class SessionFile:
    """Keeps the book of sessions, and alone changes it. The file has only digests of secrets."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._book = _load_book(path)

    def new_link(self, *, acts: bool) -> str:
        """Make a link, and return its code."""
        code = secrets.token_urlsafe(SECRET_BYTES)
        self._keep(sign_in.add_link(self._book, code, acts=acts, now=self._now()))
        return code

    def by_link(self, code: str) -> NewSession | None:
        """Open a session by a link's code, which is used up. None if the code is invalid."""
        book, link = sign_in.take_link(self._book, code, self._now())
        self._keep(book)
        return None if link is None else self.new_session(acts=link.acts)

    def new_session(self, *, acts: bool) -> NewSession:
        """Open a session."""
        cookie, token = (secrets.token_urlsafe(SECRET_BYTES) for _ in range(2))
        now = self._now()
        session = ConsoleSession(
            id=secrets.token_hex(4),
            cookie_digest=sign_in.get_digest(cookie),
            token_digest=sign_in.get_digest(token),
            made_at=now,
            seen_at=now,
            acts=acts,
        )
        self._keep(sign_in.add_session(self._book, session, now))
        return NewSession(session=session, cookie=cookie, token=token)

    def session(self, cookie: str, token: str) -> ConsoleSession | None:
        """Return the session of these secrets, and note its use. None for wrong secrets."""
        now = self._now()
        found = sign_in.find_session(self._book, cookie, token, now)
        if found is not None:
            self._keep(sign_in.use_link(self._book, found, now))
        return found

    def is_open(self, session: ConsoleSession) -> bool:
        """True if a session has not ended or signed out. This check does not count as a use."""
        now = self._now()
        return any(it.id == session.id and not it.is_over(now) for it in self._book.sessions)

    def end(self, session: ConsoleSession) -> None:
        """Sign a session out."""
        self._keep(sign_in.without_session(self._book, session))

    def wait_s(self) -> float:
        """Seconds until a key may be tried again."""
        return sign_in.wait_s(self._book, self._now())

    def key_refused(self) -> None:
        """Count a wrong key."""
        self._keep(sign_in.add_failure(self._book, self._now()))

    def _keep(self, book: SignInBook) -> None:
        if book is self._book:
            return
        self._book = book
        try:
            write_whole(self._path, msgspec.json.encode(book))
        except OSError as error:  # for example a full disk: sessions last until this process ends
            LOG.warning("%s cannot be written: %s", self._path, error)


def _load_book(path: Path) -> SignInBook:
    try:
        return decode(path.read_bytes(), SignInBook)
    except FileNotFoundError:
        return SignInBook()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        LOG.warning("%s cannot be read, so that all sessions have ended: %s", path, error)
        return SignInBook()
