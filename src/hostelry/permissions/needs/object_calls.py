"""The permissions that requests of the S3 port need."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import msgspec

from hostelry.permissions.needs.needed import (
    ALL,
    NeededPermission,
    Values,
    build_tag_keys,
    drop_repeats,
)
from hostelry.permissions.needs.object_actions import (
    ALSO,
    BUCKET_ITSELF,
    BUCKET_PARTS,
    CREDENTIALS,
    DELETE_SEVERAL,
    HEADER_ACTIONS,
    KEY_HEADERS,
    LIST_BUCKETS,
    LIST_FIELDS,
    LISTS,
    METHODS,
    NEUTRAL_PREFIXES,
    NO_PARTS,
    OBJECT_FIELDS,
    OBJECT_ITSELF,
    OBJECT_PARTS,
    OF_VERSION,
    PART_FIELDS,
    SERVICE_ARN,
    SERVICE_FIELDS,
    SERVICE_ITSELF,
    UNKNOWN,
    VERSIONED_PARTS,
)
from hostelry.permissions.needs.object_place import (
    COPY_SOURCE,
    RENAME_SOURCE,
    ObjectPlace,
    UnclearRequestError,
    build_places,
    read_copy_source,
    read_headers,
    read_path,
    read_query,
)

MAX_DELETED = 1000


class ObjectRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of the S3 port, as it is on the wire.

    `path` and `query` are not decoded. `body` is needed if the request `deletes_several` objects,
    which only its body names.
    """

    method: str
    path: str
    query: str = ""
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | None = None


def needed_for_object_call(request: ObjectRequest) -> tuple[NeededPermission, ...]:
    """The permissions that a request needs, all of them. Never empty.

    An unknown sub-resource, query field or method needs `UNKNOWN` on all resources, and the actions
    that it may be, so that a deny of them holds. Raises UnclearRequestError if the object that
    the request is about can be read in several ways, or is named by a body that is not given.
    """
    return drop_repeats(_find_needed(request))


def deletes_several(method: str, path: str, query: str) -> bool:
    """True if the request's body names the objects that it deletes."""
    try:
        place, fields = read_path(path)[0], read_query(query)
    except UnclearRequestError:
        return False
    return method == "POST" and bool(place.bucket) and not place.key and "delete" in fields


def _find_needed(request: ObjectRequest) -> Iterator[NeededPermission]:
    places, headers = read_path(request.path), read_headers(request.headers)
    try:
        fields = read_query(request.query)
        action = _find_action(request.method, places[0], fields)
    except UnclearRequestError:
        _check_other_places(request.method, places[0], headers, "")
        yield NeededPermission(action=UNKNOWN, resource=ALL)
        yield from _need_likely_actions(request, places)
        return
    _check_other_places(request.method, places[0], headers, action)
    if action == LIST_BUCKETS:
        yield NeededPermission(action=f"s3:{action}", resource=SERVICE_ARN)
        return
    if action == DELETE_SEVERAL:
        yield from _delete_several(places[0].bucket, request.body)
        return
    if fields.get("versionId"):
        action = OF_VERSION.get(action, action)
    keys = _find_keys(action, fields, headers)
    for name in (action, *ALSO.get(action, ()), *_find_header_actions(action, headers)):
        for place in places:
            yield NeededPermission(action=f"s3:{name}", resource=place.arn, context=keys)
    if action == "PutObject":
        yield from _read_source(headers)


def _check_other_places(
    method: str, place: ObjectPlace, headers: Mapping[str, str], action: str
) -> None:
    """Raise UnclearRequestError if another object may be read or written than `action` is about.

    An unknown action is "".
    """
    if method == "POST" and place.bucket and not place.key and action != DELETE_SEVERAL:
        raise UnclearRequestError("a form in the body may name the object")
    if RENAME_SOURCE in headers or (COPY_SOURCE in headers and action != "PutObject"):
        raise UnclearRequestError("a header names another object")


def _need_likely_actions(
    request: ObjectRequest, places: Sequence[ObjectPlace]
) -> Iterator[NeededPermission]:
    """The actions that an unknown operation may be: without its query, and of each part of it."""
    column = _find_column(request.method)
    if column is None:
        return
    names = [it.partition("=")[0] for it in request.query.split("&")]
    for place in places:
        bucket = ObjectPlace(place.bucket)
        itself = OBJECT_ITSELF if place.key else BUCKET_ITSELF
        likely = [(place, itself[column] or "PutObject")]
        likely += [(bucket, BUCKET_PARTS[it][column]) for it in names if it in BUCKET_PARTS]
        likely += [(place, OBJECT_PARTS[it][column]) for it in names if it in OBJECT_PARTS]
        for where, action in likely:
            if where.bucket and action:
                yield NeededPermission(action=f"s3:{action}", resource=where.arn)


def _find_column(method: str) -> int | None:
    """The place of a method in the tables."""
    column = "GET" if method == "HEAD" else method
    return METHODS.index(column) if column in METHODS else None


def _find_action(method: str, place: ObjectPlace, fields: Mapping[str, str]) -> str:
    """The action of a request, without ``s3:``. Raises UnclearRequestError if it is unknown."""
    table, itself, known = BUCKET_PARTS, BUCKET_ITSELF, LIST_FIELDS
    if not place.bucket:
        table, itself, known = NO_PARTS, SERVICE_ITSELF, SERVICE_FIELDS
    elif place.key:
        table, itself, known = OBJECT_PARTS, OBJECT_ITSELF, OBJECT_FIELDS
    parts = [name for name in fields if name in table]
    column = _find_column(method)
    if column is None or len(parts) > 1 or (parts and method == "HEAD"):
        raise UnclearRequestError(f"{method} with {parts} is not known")
    if parts:
        known = PART_FIELDS.get(parts[0], frozenset())
        known |= {"versionId"} if place.key and parts[0] in VERSIONED_PARTS else set()
    _check_fields(fields, known.union(parts))
    action = (table[parts[0]] if parts else itself)[column]
    if not action:
        raise UnclearRequestError(f"{method} with {parts} is not known")
    return action


def _check_fields(fields: Mapping[str, str], known: frozenset[str]) -> None:
    for name in fields:
        neutral = name == "x-id" or name.lower() in CREDENTIALS
        if not (name in known or neutral or name.lower().startswith(NEUTRAL_PREFIXES)):
            raise UnclearRequestError(f"the query's {name[:100]!r} is not known")


def _find_header_actions(action: str, headers: Mapping[str, str]) -> list[str]:
    """Further actions that the headers of a write ask for, on the same resource."""
    wanted = HEADER_ACTIONS.get(action, {})
    return list(
        dict.fromkeys(
            further
            for start, further in wanted.items()
            if any(
                name == start or (start[-1] == "-" and name.startswith(start)) for name in headers
            )
        )
    )


def _find_keys(
    action: str, fields: Mapping[str, str], headers: Mapping[str, str]
) -> dict[str, Values]:
    """The context keys of a request."""
    by_header = "authorization" in headers
    found: dict[str, Values] = {
        "s3:authtype": ("REST-HEADER" if by_header else "REST-QUERY-STRING",)
    }
    if action in LISTS:
        asked = ("prefix", "delimiter", "max-keys")
        found |= {f"s3:{name}": (fields[name],) for name in asked if name in fields}
    if fields.get("versionId"):
        found["s3:versionid"] = (fields["versionId"],)
    for name in KEY_HEADERS & headers.keys():
        found[f"s3:{name}"] = (headers[name].removeprefix("/"),)
    tags = parse_qsl(headers.get("x-amz-tagging", ""), keep_blank_values=True)
    if tags:
        found |= build_tag_keys("s3:RequestObjectTag", dict(tags))
        found["s3:requestobjecttagkeys"] = tuple(dict(tags))
    return found


def _read_source(headers: Mapping[str, str]) -> Iterator[NeededPermission]:
    """The permission to read the object that a request copies."""
    source = read_copy_source(headers)
    if source is None:
        return
    action = "s3:GetObjectVersion" if source.version else "s3:GetObject"
    keys: dict[str, Values] = {"s3:versionid": (source.version,)} if source.version else {}
    for place in source.places:
        yield NeededPermission(action=action, resource=place.arn, context=keys)


def needed_for_key(
    actions: Iterable[str], key_arn: str, object_arn: str
) -> tuple[NeededPermission, ...]:
    """The permissions of KMS that a request needs on the key of the object that it is about."""
    keys: dict[str, Values] = {
        "kms:viaservice": (f"s3.{key_arn.split(':')[3]}.amazonaws.com",),
        "kms:encryptioncontext:aws:s3:arn": (object_arn,),
        "kms:encryptioncontextkeys": ("aws:s3:arn",),
    }
    return tuple(
        NeededPermission(action=f"kms:{name}", resource=key_arn, context=keys) for name in actions
    )


def _delete_several(bucket: str, body: bytes | None) -> Iterator[NeededPermission]:
    """The permission for each object that the body of DeleteObjects names."""
    if body is None:
        raise UnclearRequestError("the body that names the objects was not read")
    for key, version in _read_deleted(body):
        action = "s3:DeleteObjectVersion" if version else "s3:DeleteObject"
        keys: dict[str, Values] = {"s3:versionid": (version,)} if version else {}
        for place in build_places(bucket, key):
            yield NeededPermission(action=action, resource=place.arn, context=keys)


def _read_deleted(body: bytes) -> list[tuple[str, str]]:
    """The keys and versions of a DeleteObjects document. Raises UnclearRequestError."""
    if b"<!" in body:
        raise UnclearRequestError("the document declares a type, or has comments")
    try:
        root = ElementTree.fromstring(body.decode())
    except (ElementTree.ParseError, ValueError, LookupError):
        raise UnclearRequestError("the document is not XML") from None
    found = []
    for child in root:
        if _read_name(child) != "Object":
            continue
        members: dict[str, str] = {}
        for member in child:
            if _read_name(member) in members or len(member):
                raise UnclearRequestError("an object of the document is not clear")
            members[_read_name(member)] = member.text or ""
        if not members.get("Key"):
            raise UnclearRequestError("an object of the document has no key")
        found.append((members["Key"], members.get("VersionId", "")))
    if not 0 < len(found) <= MAX_DELETED:
        raise UnclearRequestError(f"the document names {len(found)} objects")
    return found


def _read_name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
