"""Archives for tests: valid archives, and hostile archives that tarfile would refuse to write."""

import gzip
import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Member:
    """One member. `size` may differ from the length of `body`."""

    name: str
    body: bytes = b""
    kind: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o644
    size: int | None = None


def header(member: Member, encoding: str = "utf-8") -> bytes:
    info = tarfile.TarInfo(member.name)
    info.type = member.kind
    info.linkname = member.link
    info.mode = member.mode
    info.size = len(member.body) if member.size is None else member.size
    return info.tobuf(tarfile.GNU_FORMAT, encoding, "surrogateescape")


def padded(body: bytes) -> bytes:
    return body + b"\0" * (-len(body) % 512)


def tar(members: Sequence[Member], encoding: str = "utf-8") -> bytes:
    """A tar with exactly these members, in GNU's format."""
    return b"".join(header(it, encoding) + padded(it.body) for it in members) + b"\0" * 1024


def targz(members: Sequence[Member], encoding: str = "utf-8") -> bytes:
    return gzip.compress(tar(members, encoding), mtime=0)


def pax_targz(name: str, body: bytes, headers: dict[str, str]) -> bytes:
    """A tar whose member has extended headers."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo(name)
        info.size = len(body)
        info.pax_headers = headers
        archive.addfile(info, io.BytesIO(body))
    return written.getvalue()
