"""ListBuckets of all accounts, and CreateBucket and DeleteBucket of further accounts.

The store knows one account. Control keeps whose bucket each bucket is, and a name is claimed there
before the store makes the bucket.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import httpx
import msgspec

from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.ids import new_request_id
from hostelry.base.peer_http import loopback_client
from hostelry.domain.principal import BucketClaim
from hostelry.home.home import Credentials, UpConfig
from hostelry.http1.heads import build_answer
from hostelry.s3.admission import S3Refusal
from hostelry.s3.head import Head, query_names
from hostelry.s3.passage import Passage
from hostelry.s3.permits import TAKEN, split_path
from hostelry.s3.store_client import StoreClient

XML = "application/xml"
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
PATH = "/internal/buckets"
TIMEOUT_S = 10.0
AWAY = S3Refusal(503, "ServiceUnavailable", "The platform is restarting; try again.")


class BucketCalls:
    """Answers such calls. It asks control by `mounts`.

    `forget` drops the notification configuration of a bucket that is made or deleted.
    """

    def __init__(
        self,
        config: UpConfig,
        credentials: Credentials,
        passage: Passage,
        store: StoreClient,
        mounts: Mapping[str, httpx.AsyncBaseTransport],
        forget: Callable[[str], None],
    ) -> None:
        self._forget = forget
        self._changing = asyncio.Lock()
        self._url = f"{config.control_url}{PATH}"
        self._headers = {INTERNAL_KEY_HEADER: credentials.internal_key}
        self._owner = credentials.account_id
        self._passage = passage
        self._store = store
        self._client = loopback_client(TIMEOUT_S, mounts)

    def answers(self, head: Head) -> bool:
        """Whether the request is such a call. Raises S3Refusal for an unclear path."""
        is_stores = self._passage.is_for_store(head)
        bucket, key = split_path(head)
        if not bucket:
            return head.method == "GET" and not (
                is_stores and not self._passage.permits.has_buckets_of_others
            )
        plain = not query_names(head) - {"x-id"}
        return not is_stores and not key and plain and head.method in ("PUT", "DELETE")

    async def answer(
        self, head: Head, source_ip: str, read_body: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        """Answer such a call. Raises S3Refusal."""
        bucket, _ = split_path(head)
        makes = head.method == "PUT"
        account = self._passage.check_permitted(head, source_ip, makes_bucket=makes).account
        await read_body()  # a region, or nothing
        if not bucket:
            return _build_answer(200, await self._list(account))
        async with self._changing:  # so that a late claim never replaces a newer one
            change = self._create if makes else self._delete
            return await change(bucket, account)

    async def _list(self, account: str) -> bytes:
        answer = await self._ask("GET", "/")
        rows = []
        for entry in ElementTree.fromstring(answer.content).iter():
            if entry.tag.rpartition("}")[2] != "Bucket":
                continue
            found = {child.tag.rpartition("}")[2]: child.text or "" for child in entry}
            name = found.get("Name", "")
            if self._passage.permits.find_owner(name) == account:
                made_at = escape(found.get("CreationDate", ""))
                rows.append(
                    f"<Bucket><Name>{escape(name)}</Name>"
                    f"<CreationDate>{made_at}</CreationDate></Bucket>"
                )
        owner = f"<Owner><ID>{account}</ID><DisplayName>{account}</DisplayName></Owner>"
        return (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<ListAllMyBucketsResult xmlns="{NAMESPACE}">'
            f"{owner}<Buckets>{''.join(rows)}</Buckets></ListAllMyBucketsResult>"
        ).encode()

    async def _create(self, bucket: str, account: str) -> bytes:
        target = f"/{quote(bucket, safe='')}"
        if (await self._ask("HEAD", target)).status_code != 404:
            mine = self._passage.permits.find_owner(bucket) == account
            code = "BucketAlreadyOwnedByYou" if mine else "BucketAlreadyExists"
            raise S3Refusal(409, code, TAKEN)
        if not await self._claim(bucket, account, is_claimed=True):
            raise S3Refusal(409, "BucketAlreadyExists", TAKEN)
        self._forget(bucket)
        made = await self._store.ask("PUT", target)
        if made is None:
            raise AWAY
        if made.status_code != 200:
            await self._claim(bucket, account, is_claimed=False)
            return _build_answer(made.status_code, made.content)
        return _build_answer(200, b"", {"Location": target})

    async def _delete(self, bucket: str, account: str) -> bytes:
        answer = await self._ask("DELETE", f"/{quote(bucket, safe='')}")
        if answer.status_code in (204, 404):
            self._forget(bucket)
            self._passage.keys.defaults.note_change(bucket)
            await self._claim(bucket, account, is_claimed=False)
        return _build_answer(answer.status_code, answer.content)

    async def _ask(self, method: str, target: str) -> httpx.Response:
        """Ask the store. Raises S3Refusal 503 if it does not answer."""
        found = await self._store.ask(method, target)
        if found is None or found.status_code >= 500:
            raise AWAY
        return found

    async def _claim(self, bucket: str, account: str, *, is_claimed: bool) -> bool:
        """Report to control whose bucket it is, or that it is gone. False if it is another's.

        Buckets without a record are the first account's.
        """
        if account == self._owner:
            return True
        claim = BucketClaim(bucket=bucket, account=account, is_claimed=is_claimed)
        try:
            answer = await self._client.post(
                self._url, headers=self._headers, content=msgspec.json.encode(claim)
            )
        except httpx.HTTPError:
            raise AWAY from None
        if answer.status_code not in (204, 409):
            raise AWAY
        if answer.status_code == 204:
            self._passage.permits.note_claim(bucket, account if is_claimed else self._owner)
        return answer.status_code == 204


def _build_answer(status: int, body: bytes, more: Mapping[str, str] | None = None) -> bytes:
    headers = {"Content-Type": XML, "x-amz-request-id": new_request_id(), **(more or {})}
    return build_answer(status, headers, body)
