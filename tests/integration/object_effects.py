"""Effects of requests on a real object store, and the permissions that they show to be needed."""

import hashlib
import http.client
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from hostelry.aws.s3_signing import OwnKey, authorization, format_date
from hostelry.base.clock import SystemClock
from hostelry.permissions.needs.object_actions import BUCKET_PARTS, LIST_FIELDS, OBJECT_PARTS
from hostelry.permissions.needs.object_calls import ObjectRequest, needed_for_object_call
from hostelry.permissions.needs.object_place import UnclearRequestError

PUBLIC, SECRET, WRITTEN = b"PUBLIC", b"SECRET", b"WRITTEN"
COPY = {"x-amz-copy-source": "/secret/k"}
OTHER_NAMES = ("ACL", "foo", "x-id", "torrent", "restore", "partNumber", "versionId", "partnumber")
# The proxy answers calls on notifications, which the store ignores.
NAMES = sorted({*BUCKET_PARTS, *OBJECT_PARTS, *LIST_FIELDS, *OTHER_NAMES} - {"notification"})
ANSWERS = {
    b"<ListBucketResult": "ListBucket",
    b"<ListVersionsResult": "ListBucketVersions",
    b"<ListMultipartUploadsResult": "ListBucketMultipartUploads",
}


@dataclass(frozen=True)
class Effect:
    """One request, and an action (or its form for versions) that its effect was."""

    method: str
    target: str
    headers: Mapping[str, str]
    actions: tuple[str, ...]
    resource: str

    def is_needed(self) -> bool:
        """True if the request needs the action, or is refused."""
        path, _, query = self.target.partition("?")
        request = ObjectRequest(
            method=self.method, path=path, query=query, headers=list(self.headers.items())
        )
        try:
            found = {(it.action, it.resource) for it in needed_for_object_call(request)}
        except UnclearRequestError:
            return True
        resource = f"arn:aws:s3:::{self.resource}"
        return any((f"s3:{action}", resource) in found for action in self.actions)


class ProbedStore:
    """A store with the objects `/public/k` and `/secret/k`, whose requests are watched."""

    def __init__(self, port: int, key: OwnKey) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self._host, self._key = f"127.0.0.1:{port}", key
        for bucket in ("public", "secret", "old"):
            self.ask("PUT", f"/{bucket}")
        self.ask("PUT", "/secret/k", body=SECRET)
        self.ask("PUT", "/public/k", body=PUBLIC)

    def ask(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> tuple[int, bytes]:
        stamp = format_date(SystemClock().now())
        digest = hashlib.sha256(body).hexdigest()
        sent = {"Host": self._host, "X-Amz-Date": stamp, "X-Amz-Content-SHA256": digest}
        sent |= {**(headers or {}), "Content-Length": str(len(body))}
        values = {name.lower(): value for name, value in sent.items()}
        sent["Authorization"] = authorization(method, target, values, self._key, stamp)
        self._connection.request(method, target, body, sent)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def close(self) -> None:
        self._connection.close()

    def find_effects(self, queries: Iterable[str]) -> Iterator[Effect]:
        """The effects of requests with each of the queries."""
        for query in queries:
            for target in (f"/public/k?{query}", f"/public?{query}"):
                yield from self._find_read("GET", target)
            yield from self._find_read("HEAD", f"/public/k?{query}")
            for method, headers in itertools.product(("PUT", "POST", "DELETE"), ({}, COPY)):
                yield from self._find_write(method, f"/public/k?{query}", headers)
            yield from self._find_bucket_change(query)

    def _find_read(self, method: str, target: str) -> Iterator[Effect]:
        status, body = self.ask(method, target)
        if PUBLIC in body or (method == "HEAD" and status == 200):
            yield Effect(method, target, {}, ("GetObject", "GetObjectVersion"), "public/k")
        for begin, action in ANSWERS.items():
            if begin in body:
                yield Effect(method, target, {}, (action,), "public")

    def _find_write(self, method: str, target: str, headers: Mapping[str, str]) -> Iterator[Effect]:
        self.ask(method, target, headers, b"" if method == "DELETE" else WRITTEN)
        status, body = self.ask("GET", "/public/k")
        if body == PUBLIC:
            return
        if status == 404:
            actions = ("DeleteObject", "DeleteObjectVersion")
            yield Effect(method, target, headers, actions, "public/k")
        else:
            yield Effect(method, target, headers, ("PutObject",), "public/k")
        if body == SECRET:
            yield Effect(method, target, headers, ("GetObject",), "secret/k")
        self.ask("PUT", "/public/k", body=PUBLIC)

    def _find_bucket_change(self, query: str) -> Iterator[Effect]:
        self.ask("PUT", f"/new?{query}")
        if self.ask("HEAD", "/new")[0] == 200:
            yield Effect("PUT", f"/new?{query}", {}, ("CreateBucket",), "new")
            self.ask("DELETE", "/new")
        self.ask("DELETE", f"/old?{query}")
        if self.ask("HEAD", "/old")[0] != 200:
            yield Effect("DELETE", f"/old?{query}", {}, ("DeleteBucket",), "old")
            self.ask("PUT", "/old")


def choose_queries(*, is_thorough: bool) -> list[str]:
    """Queries with one field, and at random with two."""
    if not is_thorough:
        return NAMES[::4]
    pairs = [f"{first}&{second}=1" for first, second in itertools.permutations(NAMES, 2)]
    return [*NAMES, *(f"{name}=1" for name in NAMES), *Random(7).sample(pairs, 300)]
