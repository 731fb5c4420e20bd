"""The object store's certificate, which clients of its gRPC ports must present.

It is made at each start, is self-signed, and is the only authority that the store trusts, so that
only processes that can read its key file may connect: the store's servers, and its owner's.

``python -m hostelry.processes.objectstore_keys FOLDER PROGRAM ARGUMENT...`` makes it, and becomes
the program: in `up` itself, the library of certificates would stay in memory.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from hostelry.base.certificates import self_signed
from hostelry.base.clock import SystemClock
from hostelry.base.files import write_whole

CERTIFICATE, KEY = "grpc.crt", "grpc.key"
# Every server and client of SeaweedFS. security.toml has a section for each.
PARTS = ("MASTER", "VOLUME", "FILER", "S3", "ADMIN", "WORKER", "CLIENT")


def grpc_environment(folder: Path, now: float) -> Mapping[str, str]:
    """Make a certificate in `folder`. Returns settings with which SeaweedFS requires it (mTLS)."""
    certificate, key = self_signed("hostelry-objectstore", now)
    write_whole(folder / CERTIFICATE, certificate)
    write_whole(folder / KEY, key)
    return settings(str(folder / CERTIFICATE), str(folder / KEY))


def settings(certificate: str, key: str) -> Mapping[str, str]:
    """SeaweedFS's [grpc] sections, as environment variables."""
    return {
        "WEED_GRPC_CA": certificate,
        **{f"WEED_GRPC_{part}_CERT": certificate for part in PARTS},
        **{f"WEED_GRPC_{part}_KEY": key for part in PARTS},
    }


def main() -> None:
    """Make the certificate, and become the program. Ends with code 1 and a line if that fails."""
    folder, *program = sys.argv[1:]
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would the program
        signal.signal(number, signal.SIG_DFL)
    try:
        own = grpc_environment(Path(folder), SystemClock().now())
        os.execve(program[0], program, {**os.environ, **own})
    except OSError as error:
        sys.exit(f"the object store cannot run: {error}")


if __name__ == "__main__":
    main()
