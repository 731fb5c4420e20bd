"""The console's page, scripts and styles, held in memory as they were installed."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    """One file, and its ETag."""

    content: bytes
    media_type: str
    etag: str


def static_files(folder: Path = FOLDER) -> Mapping[str, StaticFile]:
    """Every file below `folder` by its path there, with slashes."""
    paths = (it for it in sorted(folder.rglob("*")) if it.suffix in TYPES)
    return {it.relative_to(folder).as_posix(): _loaded(it) for it in paths}


def _loaded(path: Path) -> StaticFile:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return StaticFile(content=content, media_type=TYPES[path.suffix], etag=etag)
