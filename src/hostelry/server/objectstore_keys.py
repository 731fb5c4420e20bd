"""The object store's certificate, which clients of its gRPC ports must present.

It is made at each start, is self-signed, and is the only authority that the store trusts, so that
only processes that can read its key file may connect: the store's servers, and its owner's.
"""

import logging
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger(__name__)
CERTIFICATE, KEY = "grpc.crt", "grpc.key"
# Every server and client of SeaweedFS; security.toml has a section for each.
PARTS = ("MASTER", "VOLUME", "FILER", "S3", "ADMIN", "WORKER", "CLIENT")
VALID_DAYS = "36500"  # each start makes another one
MADE_WITHIN_S = 30.0


def grpc_environment(folder: Path) -> Mapping[str, str]:
    """Make a certificate in `folder`; the settings that have SeaweedFS require it (mTLS).

    Empty, and logged, where `openssl` is missing or fails.
    """
    try:
        draw_certificate(folder)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning(
            "the object store's gRPC ports are open to every user of this machine, because no "
            "certificate can be made: %s",
            reason(error),
        )
        return {}
    return settings(str(folder / CERTIFICATE), str(folder / KEY))


def draw_certificate(folder: Path) -> None:
    """Write a new key and its certificate, readable by the owner only."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise FileNotFoundError("openssl is not installed")
    argv = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    argv += ["-nodes", "-days", VALID_DAYS, "-subj", "/CN=hostelry-objectstore"]
    argv += ["-keyout", str(folder / KEY), "-out", str(folder / CERTIFICATE)]
    for name in (KEY, CERTIFICATE):
        (folder / name).unlink(missing_ok=True)
        (folder / name).touch(mode=0o600)
    subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=MADE_WITHIN_S,
        umask=0o077,
    )


def settings(certificate: str, key: str) -> Mapping[str, str]:
    """SeaweedFS's [grpc] sections, as environment variables."""
    return {
        "WEED_GRPC_CA": certificate,
        **{f"WEED_GRPC_{part}_CERT": certificate for part in PARTS},
        **{f"WEED_GRPC_{part}_KEY": key for part in PARTS},
    }


def reason(error: Exception) -> str:
    """Why there is no certificate, with what openssl printed."""
    printed = getattr(error, "stderr", None) or b""
    return f"{error} {printed.decode(errors='replace').strip()}".strip()
