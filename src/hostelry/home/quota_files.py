"""The files of a home in which gateway workers keep quotas and their use."""

from pathlib import Path

import msgspec

from hostelry.home.home import Home


class QuotaFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's last quotas, and memory that its workers share.

    `windows` has the use of the last minute, `days` the use since midnight UTC, `tenants` the
    tenants of each destination. The worker that holds the lock of `reporter` reports the use.
    """

    document: Path
    windows: Path
    days: Path
    tenants: Path
    reporter: Path


def get_quota_files(home: Home) -> QuotaFiles:
    """The files of a home."""
    return QuotaFiles(
        document=home.root / "quotas.json",
        windows=home.run / "quotas",
        days=home.root / "quotas.used",
        tenants=home.run / "tenants",
        reporter=home.run / "quotas.reporter",
    )
