"""wrk, the load generator written in C, for machines that have it: the same loads as `load`.

A generator in Python takes as much of a small machine's processors as the measured server.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import msgspec

from benchmarks.load import Load, Measured

SCRIPT = """
local requests = {{ {requests} }}
local number = 0
request = function()
  number = number % #requests + 1
  return requests[number]
end
done = function(summary, latency)
  local errors = summary.errors
  io.stderr:write(string.format(
    '{{"count":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"errors":%d}}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""


class WrkResult(msgspec.Struct, kw_only=True):
    """The last line of the script, with times in microseconds."""

    count: int
    duration_us: int
    p50_us: int
    p99_us: int
    errors: int


def has_wrk() -> bool:
    """Whether the machine has wrk."""
    return shutil.which("wrk") is not None


def run_wrk(load: Load) -> Measured:
    """Send `load` and return its results. Raises RuntimeError if wrk fails."""
    requests = ", ".join(lua_string(request) for request in load.requests)
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT.format(requests=requests))
        script.flush()
        if load.warm_up_s:
            _run(load, load.warm_up_s, Path(script.name))
        result = _run(load, load.duration_s, Path(script.name))
    return Measured(
        count=result.count,
        total=result.count,
        errors=result.errors,
        per_s=result.count / result.duration_us * 1e6,
        p50_ms=result.p50_us / 1000,
        p99_ms=result.p99_us / 1000,
    )


def _run(load: Load, duration_s: float, script: Path) -> WrkResult:
    done = subprocess.run(
        [
            *("wrk", "--threads", "1", "--connections", str(load.num_connections)),
            *("--duration", f"{max(1, round(duration_s))}s", "--timeout", "10s"),
            *("--script", str(script), f"http://127.0.0.1:{load.port}/"),
        ],
        capture_output=True,
        check=False,
    )
    try:
        return msgspec.json.decode(done.stderr, type=WrkResult)
    except msgspec.DecodeError:
        output = (done.stdout + done.stderr).decode(errors="replace")
        raise RuntimeError(f"wrk failed with {done.returncode}: {output}") from None


def lua_string(data: bytes) -> str:
    """`data` as a literal of Lua."""
    return '"' + "".join(f"\\{byte:03d}" for byte in data) + '"'
