"""The console's static files, security headers, and the check of a request's origin."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class StaticFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file with its ETag."""

    content: bytes
    media_type: str
    etag: str


def static_files(folder: Path = FOLDER) -> Mapping[str, StaticFile]:
    """Read every file below `folder`, by its relative path with slashes."""
    paths = (it for it in sorted(folder.rglob("*")) if it.suffix in TYPES)
    return {it.relative_to(folder).as_posix(): _load_file(it) for it in paths}


def _load_file(path: Path) -> StaticFile:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return StaticFile(content=content, media_type=TYPES[path.suffix], etag=etag)


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), usb=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
OWN_SITES = ("same-origin", "none")  # "none" if the user typed the address
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


def foreign_read(site: str | None) -> bool:
    """True if the browser says that a page of another origin sends a GET for data.

    `site` is Sec-Fetch-Site, which browsers send to loopback and over TLS.
    """
    return site is not None and site not in OWN_SITES


def foreign_write(host: str, origin: str | None, site: str | None) -> bool:
    """True unless a page of this console's own address sends a POST.

    Origin            Sec-Fetch-Site         result
    of `host`         same-origin or absent  False
    of `host`         any other              True
    absent, another   any                    True: browsers send Origin with every POST
    """
    if site is not None and site != "same-origin":
        return True
    return not host or origin not in (f"http://{host}", f"https://{host}")


class SecurityHeaders:
    """ASGI middleware that adds `HEADERS` to every answer, and ``no-store`` by default."""

    def __init__(self, app: _App) -> None:
        self._app = app

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Pass the request on."""

        async def added(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                lines = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                if not any(name == b"cache-control" for name, _ in given):
                    lines.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*given, *lines]}
            await send(message)

        await self._app(scope, receive, added)
