"""HTTP API of files and batches for OpenAI's clients. The gateway has verified the caller.

request                            answer
--------------------------------   ------------------------------------------------------
POST /v1/files                     the file, once its bytes and its row are durable
GET  /v1/files, /v1/files/ID       a page of files, one file
GET  /v1/files/ID/content          the file's bytes
DELETE /v1/files/ID                confirms the deletion
POST /v1/batches                   the batch, once it is durable
GET  /v1/batches, /v1/batches/ID   a page of batches, one batch
POST /v1/batches/ID/cancel         the batch, which is being cancelled
"""

import asyncio
import logging
import secrets
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import RetryableError, ServiceError
from hostelry.base.http import HttpRequest, HttpResponse, whole_number
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.request_body import BodyLostError, RequestBody
from hostelry.dataplane.openai import error_response
from hostelry.domain.llm_batch import LlmBatch, StatusOrderError, StoredFile
from hostelry.domain.scope import Scope
from hostelry.jobs.batches.batch_work import BatchWork
from hostelry.jobs.batches.file_store import FileStore, IncomingFile
from hostelry.jobs.batches.openai_objects import (
    UPLOAD_PURPOSE,
    WINDOW_S,
    build_batch_answer,
    build_file_answer,
    build_no_batch_error,
    build_no_file_error,
    build_page,
    build_refusal,
    check_purpose,
    get_upload_kept_s,
    parse_batch_request,
)
from hostelry.jobs.batches.rows import BatchRows
from hostelry.jobs.records.batch_lines import MAX_FILE_BYTES
from hostelry.jobs.records.splitting import RecordError
from hostelry.jobs.records.upload_form import UploadForm, parse_boundary

LOG = logging.getLogger(__name__)
TOO_MUCH = 413


class FileRoom:
    """Limits the size of each account's files, including uploads. Thread-safe.

    Result files of batches count, too, but are never refused.
    """

    def __init__(self, rows: BatchRows, max_bytes: int) -> None:
        self.rows = rows
        self.max_bytes = max_bytes
        self._arriving: Counter[str] = Counter()  # bytes of uploads that have not ended
        self._lock = threading.Lock()

    def open_upload(self, account: str) -> "UploadedBytes":
        """Begin an upload of the account. Raises ServiceError 413 if the account has no room."""
        found = UploadedBytes(self, account, self.rows.count_bytes(account))
        found.add(0)
        return found

    def count_arriving(self, account: str, num_bytes: int) -> int:
        """Add to the bytes of the account's uploads, and return their sum."""
        with self._lock:
            self._arriving[account] += num_bytes
            return self._arriving[account]

    def build_error(self, held_bytes: int) -> ServiceError:
        """Build the error of an upload that does not fit next to files of `held_bytes`."""
        return build_refusal(
            f"The files of this account have {held_bytes} bytes, and may have {self.max_bytes}"
            " with this one. Delete files, or raise --files-gb of `hostelry up`.",
            "file",
            "storage_limit_exceeded",
            TOO_MUCH,
        )


class UploadedBytes:
    """The bytes of one upload. They count as the account's until `close`."""

    def __init__(self, room: FileRoom, account: str, held_bytes: int) -> None:
        self._room = room
        self._account = account
        self._held_bytes = held_bytes  # of the account's files, when the upload began
        self._num_bytes = 0

    def add(self, num_bytes: int) -> None:
        """Count bytes. Raises ServiceError 413 if they exceed the account's room."""
        arriving = self._room.count_arriving(self._account, num_bytes)
        self._num_bytes += num_bytes
        if self._held_bytes + max(1, arriving) > self._room.max_bytes:
            raise self._room.build_error(self._held_bytes + arriving - self._num_bytes)

    def keep(self, stored: StoredFile) -> None:
        """Add the file's row. Raises ServiceError 413 if other uploads took the room meanwhile."""
        if not self._room.rows.add_file(stored, self._room.max_bytes):
            raise self._room.build_error(self._room.rows.count_bytes(self._account))

    def close(self) -> None:
        """End the upload, complete or not."""
        self._room.count_arriving(self._account, -self._num_bytes)
        self._num_bytes = 0


PREFIX = "/v1/"
FILES, BATCHES = "files", "batches"
FILES_PAGE, BATCHES_PAGE = 10_000, 20
MOST_ON_PAGE = {FILES: 10_000, BATCHES: 100}
Fields = Mapping[str, str]


class OpenAiFilesApi(msgspec.Struct, frozen=True, kw_only=True):
    """The handlers."""

    rows: BatchRows
    files: FileStore
    room: FileRoom
    work: BatchWork
    clock: Clock

    async def serve(self, exchange: Exchange) -> None:
        """Answer one request. Raises errors that the caller did not cause."""
        request = exchange.request
        try:
            await self._serve(exchange)
        except ServiceError as error:
            exchange.respond(error_response(error, _request_id(request)))
        except (RecordError, BodyLostError) as error:
            found = build_refusal(str(error), "file")
            exchange.respond(error_response(found, _request_id(request)))
        except (OSError, RetryableError) as error:
            if exchange.started:
                raise  # cuts the connection, so that the client does not take a part for the whole
            found = ServiceError("server_error", f"It cannot be kept now: {error}", 503)
            exchange.respond(error_response(found, _request_id(request)))

    async def _serve(self, exchange: Exchange) -> None:
        request = exchange.request
        scope = Scope(
            request.headers.get("x-hostelry-account", ""),
            request.headers.get("x-hostelry-region", ""),
        )
        kind, *names = [unquote(it) for it in request.path.removeprefix(PREFIX).split("/")]
        fields = dict(parse_qsl(request.query))
        match request.method, kind, names:
            case "POST", "files", []:
                await self._upload(exchange, scope)
            case "GET", "files", []:
                exchange.respond(_json(await self._list_files(scope, fields)))
            case "GET", "files", [id]:
                exchange.respond(_json(build_file_answer(await self._file(scope, id))))
            case "GET", "files", [id, "content"]:
                await self._content(exchange, await self._file(scope, id))
            case "DELETE", "files", [id]:
                exchange.respond(_json(await self._delete(await self._file(scope, id))))
            case "POST", "batches", []:
                exchange.respond(_json(await self._create(scope, request.body)))
            case "GET", "batches", []:
                exchange.respond(_json(await self._batches(scope, fields)))
            case "GET", "batches", [id]:
                batch, _ = self.work.present(await self._batch(scope, id))
                exchange.respond(_json(build_batch_answer(batch)))
            case "POST", "batches", [id, "cancel"]:
                exchange.respond(_json(await self._cancel(await self._batch(scope, id))))
            case _:
                text = f"Unknown request URL: {request.method} {request.path:.200}."
                raise ServiceError("unknown_url", text, 404)

    async def _upload(self, exchange: Exchange, scope: Scope) -> None:
        form = UploadForm(parse_boundary(exchange.request.headers.get("content-type", "")))
        if exchange.body is None:
            raise build_refusal("The body must be a form with a file.", "file")
        id = f"file-{secrets.token_hex(12)}"
        uploaded = await asyncio.to_thread(self.room.open_upload, scope.account)
        new = await asyncio.to_thread(self.files.begin_upload, id, scope.account)
        try:
            await _receive(exchange.body, form, new, uploaded)
            check_purpose(form.fields)
            kept_s = get_upload_kept_s(form.fields)
            await asyncio.to_thread(new.complete)
            now = self.clock.now()
            stored = StoredFile(
                id=id,
                scope=scope,
                filename=form.filename or id,
                purpose=UPLOAD_PURPOSE,
                num_bytes=new.num_bytes,
                created_at=now,
                expires_at=now + kept_s,
            )
            await asyncio.to_thread(uploaded.keep, stored)
        except BaseException:
            await asyncio.to_thread(new.drop)
            raise
        finally:
            uploaded.close()
        exchange.respond(_json(build_file_answer(stored)))

    async def _list_files(self, scope: Scope, fields: Fields) -> dict[str, Any]:
        limit = _limit(fields, FILES_PAGE, MOST_ON_PAGE[FILES])
        order = fields.get("order", "desc")
        if order not in ("asc", "desc"):
            raise build_refusal(f"order must be asc or desc, not '{order:.50}'.", "order")
        found = await asyncio.to_thread(
            self.rows.list_files,
            scope.account,
            fields.get("purpose"),
            fields.get("after"),
            limit + 1,
            order == "desc",
        )
        return build_page([build_file_answer(it) for it in found], limit)

    async def _file(self, scope: Scope, id: str) -> StoredFile:
        found = await asyncio.to_thread(self.rows.get_file, scope.account, id)
        if found is None:
            raise build_no_file_error(id)
        return found

    async def _content(self, exchange: Exchange, stored: StoredFile) -> None:
        chunks = self.files.read_chunks(stored)
        try:
            chunk = await asyncio.to_thread(next, chunks, None)
        except FileNotFoundError:  # deleted just now
            raise build_no_file_error(stored.id) from None
        exchange.start(200, {"Content-Type": "application/octet-stream"})
        while chunk is not None:
            await exchange.send(chunk)
            chunk = await asyncio.to_thread(next, chunks, None)
        exchange.finish()

    async def _delete(self, stored: StoredFile) -> dict[str, Any]:
        reader = await asyncio.to_thread(self.rows.delete_file, stored.scope.account, stored.id)
        if reader is not None:
            raise build_refusal(f"File {stored.id} is read by {reader}, which has not ended.", "id")
        try:
            await asyncio.to_thread(self.files.delete, stored.id)
        except (OSError, RetryableError) as error:  # a sweep, or the next start, removes the bytes
            LOG.warning("the bytes of %s, which is deleted, are there still: %s", stored.id, error)
        return {"id": stored.id, "object": "file", "deleted": True}

    async def _create(self, scope: Scope, body: bytes) -> dict[str, Any]:
        asked, now = parse_batch_request(body), self.clock.now()
        stored = await asyncio.to_thread(self.rows.get_file, scope.account, asked.input_file_id)
        if stored is None or stored.purpose != UPLOAD_PURPOSE:
            what = "No such File object" if stored is None else "The file's purpose is not batch"
            raise build_refusal(f"{what}: {asked.input_file_id:.100}", "input_file_id")
        expiry = asked.output_expires_after
        batch = LlmBatch(
            id=f"batch_{secrets.token_hex(16)}",
            scope=scope,
            input_file_id=stored.id,
            endpoint=asked.endpoint,
            completion_window=asked.completion_window,
            created_at=now,
            expires_at=now + WINDOW_S,
            output_file_id=f"file-{secrets.token_hex(12)}",
            error_file_id=f"file-{secrets.token_hex(12)}",
            metadata=asked.metadata,
            output_expires_after_s=None if expiry is None else expiry.seconds,
        )
        await self.work.submit(batch)
        return build_batch_answer(batch)

    async def _batches(self, scope: Scope, fields: Fields) -> dict[str, Any]:
        limit = _limit(fields, BATCHES_PAGE, MOST_ON_PAGE[BATCHES])
        found = await asyncio.to_thread(
            self.rows.list_batches, scope.account, fields.get("after"), limit + 1
        )
        return build_page([build_batch_answer(self.work.present(it)[0]) for it in found], limit)

    async def _batch(self, scope: Scope, id: str) -> LlmBatch:
        found = await asyncio.to_thread(self.rows.get_batch, scope.account, id)
        if found is None:
            raise build_no_batch_error(id)
        return found

    async def _cancel(self, batch: LlmBatch) -> dict[str, Any]:
        try:
            return build_batch_answer(await self.work.cancel(batch))
        except StatusOrderError:
            present, _ = self.work.present(batch)
            raise build_refusal(
                f"Cannot cancel a batch with status '{present.status.value}'.", "id"
            ) from None


async def _receive(
    body: RequestBody, form: UploadForm, new: IncomingFile, uploaded: UploadedBytes
) -> None:
    """Read a form's body to its end. Raises ServiceError and RecordError if it is invalid."""
    async for chunk in body.chunks():
        for piece in form.add_bytes(chunk):
            if new.num_bytes + len(piece) > MAX_FILE_BYTES:
                raise build_refusal(
                    f"The file is larger than {MAX_FILE_BYTES} bytes, the limit of a batch.",
                    "file",
                    status=413,
                )
            uploaded.add(len(piece))
            await asyncio.to_thread(new.write, piece)
    form.finish()


def _limit(fields: Fields, default: int, most: int) -> int:
    text = fields.get("limit")
    if text is None:
        return default
    number = whole_number(text, 1, most)
    if number is None:
        raise build_refusal(f"limit must be from 1 to {most}, not '{text:.50}'.", "limit")
    return number


def _request_id(request: HttpRequest) -> str:
    return request.headers.get("x-request-id", "")


def _json(value: Any) -> HttpResponse:
    return HttpResponse(200, {"Content-Type": "application/json"}, msgspec.json.encode(value))
