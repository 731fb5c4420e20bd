"""The jobs' client of the object store, against the real one."""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.integration.platform import client
from tests.integration.test_objectstore import KEYS, object_store

from hostelry.aws.s3_signing import OwnKey
from hostelry.base.clock import SystemClock
from hostelry.dataplane.fake import FakeReplyConnection
from hostelry.home.home import Home
from hostelry.http1.reply import BrokenError, Reply
from hostelry.http1.upstream import UpstreamPool
from hostelry.jobs.objects.object_output import AnswerWriter, StaleClaimError
from hostelry.jobs.objects.object_store import (
    NoSuchBucketError,
    ObjectDeniedError,
    ObjectMissingError,
    ObjectStore,
    ObjectStoreDownError,
    OutputSettings,
)

pytestmark = pytest.mark.integration
LARGE = os.urandom(1024 * 1024) * 20
CSV = OutputSettings(content_type="text/csv")


class Stores:
    """The real store, as boto3 and as jobs see it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.boto3: Any = client("s3", self.url, KEYS)
        self.boto3.create_bucket(Bucket="bucket")

    def run(self, scenario: Callable[[ObjectStore], Awaitable[None]], secret: str = "") -> None:
        async def main() -> None:
            key = OwnKey(
                access_key_id=KEYS.access_key_id,
                secret_access_key=secret or KEYS.secret_access_key,
                region=KEYS.region,
            )
            pool = UpstreamPool(10.0)
            await scenario(ObjectStore(self.url, key, pool, SystemClock().now))
            pool.close()

        asyncio.run(main())

    def stored(self, name: str) -> tuple[bytes, str]:
        found = self.boto3.get_object(Bucket="bucket", Key=name)
        return found["Body"].read(), found["ContentType"]

    def names(self) -> set[str]:
        return {it["Key"] for it in self.boto3.list_objects_v2(Bucket="bucket").get("Contents", ())}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    home = Home(Path(tmp_path_factory.mktemp("objects")) / "home")
    with object_store(home) as (_, port):
        found = Stores(port)
        yield found
        found.boto3.close()


async def agreed() -> bool:
    return True


async def refused() -> bool:
    return False


def answering(*pieces: bytes, breaks: bool = False) -> Reply:
    """An answer of a copy, all of it there."""
    reply = Reply(FakeReplyConnection())
    reply.set_head(200, {})
    for piece in pieces:
        reply.add_chunk(piece)
    if breaks:
        reply.fail(BrokenError("cut"))
    else:
        reply.end(reusable=True)
    return reply


@cases(
    "name, content",
    case("no bytes", "empty", b""),
    case("a key with all kinds of characters", "a b/ü+%2F&=?.csv", b"1,2\n"),
    case("many reads", "large", LARGE),
)
def test_an_object_is_read_as_it_was_put(stores: Stores, name: str, content: bytes) -> None:
    async def scenario(store: ObjectStore) -> None:
        await store.put(f"s3://bucket/{name}", content, CSV)
        found = await store.open(f"s3://bucket/{name}")
        assert (found.size_bytes, found.content_type) == (len(content), "text/csv")
        assert await found.whole() == content
        found.close()

    stores.run(scenario)
    assert stores.stored(name) == (content, "text/csv")


@cases(
    "uri, secret, error",
    case("no object", "s3://bucket/missing", "", ObjectMissingError),
    case("no bucket", "s3://nowhere-at-all/k", "", NoSuchBucketError),
    case("keys that may not", "s3://bucket/empty", "wrong", ObjectDeniedError),
)
def test_why_an_object_cannot_be_read(
    stores: Stores, uri: str, secret: str, error: type[Exception]
) -> None:
    async def scenario(store: ObjectStore) -> None:
        with pytest.raises(error):
            await store.open(uri)

    stores.run(scenario, secret)


def test_a_store_that_is_not_there_is_down(stores: Stores) -> None:
    async def scenario(store: ObjectStore) -> None:
        key = OwnKey(access_key_id="a", secret_access_key="b", region="us-west-2")
        gone = ObjectStore("http://127.0.0.1:1", key, UpstreamPool(), SystemClock().now)
        with pytest.raises(ObjectStoreDownError):
            await gone.open("s3://bucket/k")

    stores.run(scenario)


def test_a_read_goes_on_where_its_connection_broke(stores: Stores) -> None:
    async def scenario(store: ObjectStore) -> None:
        await store.put("s3://bucket/large", LARGE, CSV)
        found = await store.open("s3://bucket/large")
        digest, num_chunks = hashlib.sha256(), 0
        async for chunk in found.chunks():
            digest.update(chunk)
            num_chunks += 1
            if num_chunks in (2, 5):
                found._reply.fail(BrokenError("cut"))
        found.close()
        assert digest.digest() == hashlib.sha256(LARGE).digest()

    stores.run(scenario)


@cases(
    "name, pieces",
    case("no bytes", "none.out", ()),
    case("one put", "small.out", (b"1,", b"2")),
    case("one put above a megabyte", "middle.out", (LARGE[: 3 * 2**20],)),
    case("parts", "parts.out", (LARGE, b"end")),
    case("whole parts", "even.out", (LARGE[: 16 * 2**20],)),
)
def test_an_answer_becomes_its_object(stores: Stores, name: str, pieces: tuple[bytes, ...]) -> None:
    async def scenario(store: ObjectStore) -> None:
        writer = AnswerWriter(store)
        await writer.write("", f"s3://bucket/{name}", answering(*pieces), CSV, agreed)

    stores.run(scenario)
    content, kind = stores.stored(name)
    assert (content == b"".join(pieces), kind) == (True, "text/csv")


@cases(
    "reply, publish, error",
    case("small, a late owner", lambda: answering(b"1"), refused, StaleClaimError),
    case("large, a late owner", lambda: answering(LARGE), refused, StaleClaimError),
    case("an answer that breaks", lambda: answering(LARGE, breaks=True), agreed, BrokenError),
)
def test_nothing_is_visible_of_an_answer_that_must_not_be(
    stores: Stores,
    reply: Callable[[], Reply],
    publish: Callable[[], Awaitable[bool]],
    error: type[Exception],
) -> None:
    async def scenario(store: ObjectStore) -> None:
        with pytest.raises(error):
            await AnswerWriter(store).write("", "s3://bucket/never.out", reply(), CSV, publish)

    stores.run(scenario)
    assert "never.out" not in stores.names()
    assert not stores.boto3.list_multipart_uploads(Bucket="bucket").get("Uploads")
