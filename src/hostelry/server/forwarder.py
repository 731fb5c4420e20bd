"""Passes TCP connections on, byte for byte, to a port on loopback.

The object store stays on loopback; when the hostelry listens on another address, its S3 port there
is one of these. Signatures hold, because nothing is rewritten.
"""

import asyncio
import contextlib

CHUNK_BYTES = 256 * 1024


async def start_forwarder(host: str, port: int, target_port: int) -> asyncio.Server:
    """Listen on `host`:`port` and pass every connection on to 127.0.0.1:`target_port`."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(
                "127.0.0.1", target_port
            )
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(pass_on(reader, upstream_writer), pass_on(upstream_reader, writer))
        finally:
            upstream_writer.close()
            writer.close()

    return await asyncio.start_server(connected, host, port)


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until either side ends, then end the other."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
