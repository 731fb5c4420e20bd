"""`hostelry backup`: copy a home's state into a folder, or verify such a folder."""

import time
from pathlib import Path
from typing import Annotated

import typer

from hostelry.backup.manifest import BackupManifest
from hostelry.backup.read import readable_by_others, restore, verify
from hostelry.backup.write import Report, back_up
from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.errors import UsageError
from hostelry.base.files import expand_user
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.trace import bytes_text
from hostelry.cli.wait_display import WaitDisplay, waiting

VERIFY = "verify"
REPORT_EVERY_S = 1.0


def backup(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[verify] DIR", help="Folder for the backup. It must be new or empty."
        ),
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Back up a home into a folder, also while the platform runs; or verify a backup.

    The backup contains keys and all data, so its folder has mode 0700. Runtimes and caches are left
    out. `hostelry up --from DIR` restores it into an empty home.

    Example: hostelry backup /mnt/backups/monday

    Example: hostelry backup verify /mnt/backups/monday
    """
    if len(words) == 2 and words[0] == VERIFY:
        verify_here(folder_at(words[1]), as_json=as_json)
        return
    if len(words) != 1 or words[0] == VERIFY:
        raise UsageError("expected DIR, or verify DIR; a folder named verify is ./verify")
    at, folder = home_at(home), folder_at(words[0])
    config, _ = load_home(at)
    started = monotonic_s()
    with waiting() as display:
        now = SystemClock().now()
        manifest = back_up(at, config, folder, progress_in(display, "copying"), now, time.sleep)
    took_s = monotonic_s() - started
    if as_json:
        print_json({"backup": str(folder), **counts(manifest), "seconds": round(took_s, 2)})
        return
    typer.echo(f"Backed up {describe_manifest(manifest)} into {folder} ({took_s:.1f} s).")
    if manifest.s3_endpoint is not None:
        typer.echo(f"Objects are not in it: they are in {manifest.s3_endpoint}.")
    typer.echo(
        f"Verify it with `hostelry backup verify {folder}`; it has keys, so keep it private."
    )


def verify_here(folder: Path, *, as_json: bool) -> None:
    """Verify a backup and print its size, version and time."""
    started = monotonic_s()
    with waiting() as display:
        manifest = verify(folder, progress_in(display, "reading"))
    took_s, is_open = monotonic_s() - started, readable_by_others(folder)
    if as_json:
        found = {"whole": True, **counts(manifest), "readable_by_others": is_open}
        print_json({"backup": str(folder), **found, "seconds": round(took_s, 2)})
        return
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(manifest.created_at))
    typer.echo(f"{folder} is whole: {describe_manifest(manifest)}, of {made} ({took_s:.1f} s).")
    if is_open:
        typer.echo(f"Other users can enter it, and it has keys: chmod 700 {folder}")


def restore_here(source: Path, root: Path) -> None:
    """Restore a backup into the home `root`, before it is started."""
    folder = folder_at(str(source))
    with waiting() as display:
        manifest = restore(folder, root, progress_in(display, "restoring"))
    typer.echo(f"Restored {describe_manifest(manifest)} from {folder} into {root}.", err=True)


def folder_at(given: str) -> Path:
    """The folder as an absolute path. A link is not followed, so that it can be refused."""
    return expand_user(given).absolute()


def progress_in(display: WaitDisplay, verb: str) -> Report:
    """Show progress, once a second."""
    shown_at = monotonic_s()

    def report(path: str, done: int, total: int) -> None:
        nonlocal shown_at
        now_s = monotonic_s()
        if now_s - shown_at >= REPORT_EVERY_S:
            shown_at = now_s
            display.phase(f"{verb} {path}: {bytes_text(done)} of {bytes_text(total)}")

    return report


def counts(manifest: BackupManifest) -> dict[str, object]:
    """A manifest's sizes, for JSON output."""
    return {
        "files": len(manifest.files),
        "bytes": manifest.num_bytes,
        "version": manifest.version,
        "created_at": manifest.created_at,
    }


def describe_manifest(manifest: BackupManifest) -> str:
    """A manifest in one phrase."""
    num = bytes_text(manifest.num_bytes)
    return f"{len(manifest.files)} files, {num}, of Hostelry {manifest.version}"
