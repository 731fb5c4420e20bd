"""A page of a bucket's objects, as ListObjectsV2 answers."""

from dataclasses import dataclass
from xml.etree import ElementTree

from hostelry.jobs.objects.errors import ObjectStoreDownError


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object's key and size."""

    key: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ListedPage:
    """Objects by key; `after` asks for the next page, None where this is the last."""

    objects: tuple[ListedObject, ...]
    after: str | None


def read_page(answer: bytes, what: str) -> ListedPage:
    """The page; raises ObjectStoreDownError for what is none. `what` was asked for."""
    try:
        root = ElementTree.fromstring(answer)  # the operator's own store; expat bounds entities
        found = tuple(
            ListedObject(_text(child, "Key"), int(_text(child, "Size")))
            for child in root
            if child.tag.endswith("Contents")
        )
        after = _text(root, "NextContinuationToken")
    except (ElementTree.ParseError, ValueError) as error:
        raise ObjectStoreDownError(f"{what}: the answer cannot be read: {error}") from error
    return ListedPage(found, after or None)


def _text(parent: ElementTree.Element, name: str) -> str:
    for child in parent:
        if child.tag.rpartition("}")[2] == name:
            return child.text or ""
    return ""
