"""Fixtures and settings of every test."""

import asyncio
import gc
import inspect
import signal
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import settings
from tests.selection import runs_all

SHOWN_FILES = 20
FILE_SECONDS: defaultdict[str, float] = defaultdict(float)

# Machines are shared, so the duration of a case says nothing about the code.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")

# Shells make background jobs and their children ignore Ctrl-C, but tests send it to children.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--all`, which also runs the tests that `make test` leaves out."""
    parser.addoption("--all", action="store_true", help="run the tests marked `thorough`, too")
    parser.addoption("--at-most-files", type=int, help="fail if tests of more files are to run")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Freeze imported and collected objects, so that no garbage collection scans them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test in a new event loop."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    names = inspect.signature(test).parameters
    asyncio.run(test(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked `thorough`, unless `--all` is given or a test is named."""
    if runs_all(config):
        return
    left_out = [it for it in items if it.get_closest_marker("thorough") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [it for it in items if it.get_closest_marker("thorough") is None]


def pytest_collection_finish(session: pytest.Session) -> None:
    """End the run if more tests failed in company than chance explains."""
    most = session.config.getoption("--at-most-files")
    files = {item.path.name for item in session.items}
    if most is not None and len(files) > most:
        pytest.exit(f"tests of {len(files)} files failed, {most} may: {sorted(files)}", 1)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a phase of a test to the time of its file."""
    FILE_SECONDS[report.nodeid.partition("::")[0]] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the slowest files. One process runs a file, so the slowest file limits the run."""
    terminalreporter.section(f"slowest {SHOWN_FILES} of {len(FILE_SECONDS)} files")
    longest = sorted(FILE_SECONDS.items(), key=lambda it: -it[1])
    for path, seconds in longest[:SHOWN_FILES]:
        terminalreporter.write_line(f"{seconds:7.1f} s {path}")
