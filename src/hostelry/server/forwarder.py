"""TCP proxy to a port on loopback.

The object store stays on loopback; when the hostelry listens on another address, this proxy is its
S3 port there, in a process of its own: ``python -m hostelry.server.forwarder --host ADDRESS
--port PORT --target PORT``. Signatures stay valid, because no byte is rewritten.
"""

import argparse
import asyncio
import sys

from hostelry.server.heartbeat import answer_heartbeats

CHUNK_BYTES = 256 * 1024


async def start_forwarder(host: str, port: int, target_port: int) -> asyncio.Server:
    """Listen on `host`:`port` and forward every connection to 127.0.0.1:`target_port`."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, requests = await asyncio.open_connection("127.0.0.1", target_port)
        except OSError:
            writer.close()
            return
        sending = asyncio.create_task(copy_bytes(reader, requests))
        try:
            # A client may half-close and still read; once the target has ended, so has all.
            await copy_bytes(answers, writer)
        finally:
            sending.cancel()
            requests.close()
            writer.close()

    return await asyncio.start_server(connected, host, port)


async def copy_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until either side ends, then end the other."""
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


async def forward(host: str, port: int, target_port: int) -> None:
    """Forward connections until this process is ended, and answer its supervisor."""
    async with await start_forwarder(host, port, target_port) as server:
        heartbeats = asyncio.create_task(answer_heartbeats())
        try:
            await server.serve_forever()
        finally:
            heartbeats.cancel()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True, help="the address to listen on")
    parser.add_argument("--port", type=int, required=True, help="the port to listen on")
    parser.add_argument("--target", type=int, required=True, help="the port on loopback")
    arguments = parser.parse_args()
    try:
        asyncio.run(forward(arguments.host, arguments.port, arguments.target))
    except OSError as error:
        sys.exit(f"the S3 port cannot be forwarded: {error}")


if __name__ == "__main__":
    main()
