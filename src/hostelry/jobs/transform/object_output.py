"""The output object of one input object: in one put, or in parts above 8 MiB."""

from hostelry.jobs.objects.errors import ObjectError
from hostelry.jobs.objects.object_store import PART_BYTES, ObjectStore, OutputSettings, PartedUpload


class ObjectOutput:
    """Takes answers in order; nothing is visible before `complete`, each raises ObjectError."""

    def __init__(self, store: ObjectStore, uri: str, settings: OutputSettings) -> None:
        self._store = store
        self._uri = uri
        self._settings = settings
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._upload: PartedUpload | None = None

    async def write(self, piece: bytes) -> None:
        """Add bytes."""
        self._pieces.append(piece)
        self._bytes += len(piece)
        if self._bytes < PART_BYTES:
            return
        if self._upload is None:
            self._upload = await self._store.begin_upload(self._uri, self._settings)
        await self._upload.part(self._take())

    async def complete(self) -> None:
        """Make the object visible."""
        if self._upload is None:
            await self._store.put(self._uri, self._take(), self._settings)
            return
        if self._pieces:
            await self._upload.part(self._take())
        await self._upload.complete()
        self._upload = None

    async def drop(self) -> None:
        """Drop what was written, where it was not completed; parts may stay as of a broken one."""
        if self._upload is None:
            return
        try:
            await self._upload.abort()
        except ObjectError:
            return

    def _take(self) -> bytes:
        body = b"".join(self._pieces)
        self._pieces, self._bytes = [], 0
        return body
