"""Requirements of a platform for a control on a further host to lead there.

Pure, but for `machine`. A leader starts and calls instances. The local fleet's instances are
processes of the first host, which only a control of the same machine can start and see.
"""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from hostelry.base.proc import boot_id
from hostelry.home.fleet_option import LOCAL
from hostelry.home.home import UpConfig
from hostelry.home.ports import is_loopback

NO_STORE = (
    "a further control needs the platform's records in PostgreSQL: start the first host by "
    "`hostelry up --store postgresql://...`"
)
ON_FIRST_HOST = (
    "instances of --fleet local are processes of the first host, which a control on another machine"
    " can neither start nor see: start the platform by `hostelry up --fleet ray`, or run the "
    "further control on the first host's machine"
)
OWN_S3 = (
    "the embedded object store ends with the first host: start that with an object store of your "
    "own, `hostelry up --s3-endpoint URL`"
)


def machine() -> str:
    """This kernel's boot, and the namespaces of processes and network.

    Processes for which it is the same can start, signal and reach each other's.
    """
    spaces = [Path(f"/proc/self/ns/{it}").stat().st_ino for it in ("net", "pid")]
    return f"{boot_id()} {spaces[0]} {spaces[1]}"


def explain_unable(config: UpConfig, *, is_same_machine: bool) -> str | None:
    """Why no further control of the platform could lead. None if it could."""
    if config.store_url is None:
        return NO_STORE
    if is_same_machine:
        return None
    if config.fleet == LOCAL:
        return ON_FIRST_HOST
    if config.has_own_s3:
        return OWN_S3
    if _is_here(urlsplit(config.s3_url).hostname):
        return _loopback("--s3-endpoint", "object store")
    if _is_here(_get_server(config.store_url)):
        return _loopback("--store", "database")
    if config.ray_address and _is_here(urlsplit(f"//{config.ray_address}").hostname):
        return _loopback("--ray-address", "Ray cluster")
    return None


def _get_server(store_url: str) -> str | None:
    parts = urlsplit(store_url)
    named = parse_qs(parts.query).get("host", [None])[0]
    return named or parts.hostname


def _is_here(host: str | None) -> bool:
    return not host or host.startswith("/") or is_loopback(host)


def _loopback(flag: str, what: str) -> str:
    return (
        f"the first host's {flag} names the {what} on its own machine: start it with an address at "
        "which every host reaches it"
    )
