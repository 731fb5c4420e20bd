"""The console in a real browser: Debian's Chromium, controlled by Playwright's sync API.

    with chromium() as browser, signed_in(browser, platform, acts=True) as console:
        console.open("fleet")
        expect(console.page.get_by_role("heading", name="Fleet")).to_be_visible()

At its end the context fails the test for warnings and errors on the browser's console, errors of
the page's scripts, requests to other addresses, and serious findings of axe. Playwright's sync API
does not work in a running event loop, so use it in the test's own thread.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright
from tests.integration.platform import Platform

CHROMIUM = "/usr/bin/chromium"
ACTION_TIMEOUT_MS = 20_000
GRAVE = ("serious", "critical")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window. For root it also has no sandbox."""
    expect.set_options(timeout=ACTION_TIMEOUT_MS)  # machines are shared, so actions may be slow
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


class ConsolePage:
    """One page of a browser. `faults` has forbidden events, except those that `may_log` matches."""

    def __init__(self, page: Page, platform: Platform, may_log: Sequence[str]) -> None:
        self.page = page
        self.address = f"{platform.config.gateway_url}/console"
        self.faults: list[str] = []
        self._platform = platform
        self._may_log = may_log
        page.set_default_timeout(ACTION_TIMEOUT_MS)
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("request", self._asked)

    def open(self, path: str) -> None:
        """Load a view as a new visit of its address."""
        self.page.goto(f"{self.address}/{path}")

    def allow(self, *patterns: str) -> None:
        """Allow matching messages from now on, for example when a test kills the console."""
        self._may_log = (*self._may_log, *patterns)

    def check(self) -> None:
        """Fail for the faults so far, and for axe's findings in the present view."""
        assert not self.faults, self.faults
        found = axe_findings(self.page)
        assert not found, "\n".join(found)

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        text = f"{message.type}: {message.text} {message.location.get('url', '')}"
        if not any(re.search(pattern, text) for pattern in self._may_log):
            self.faults.append(text)

    def _asked(self, request: Request) -> None:
        own = self._platform.config.gateway_url
        if not request.url.startswith((f"{own}/", "data:")):
            self.faults.append(f"a request to {request.url}")


def axe_findings(page: Page) -> list[str]:
    """axe's serious and critical findings."""
    violations: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [
        f"{rule['impact']}: {rule['help']}: {[it['html'][:200] for it in rule['nodes'][:3]]}"
        for rule in violations
        if rule["impact"] in GRAVE
    ]


def sign_in_link(platform: Platform, *, acts: bool = False) -> str:
    """The link that `hostelry console` prints."""
    flags = ["--acts"] if acts else []
    printed = json.loads(platform.cli("console", "--json", *flags).stdout)
    return str(printed["url"])


@contextmanager
def visiting(
    browser: Browser, platform: Platform, *, may_log: Sequence[str] = (), **options: Any
) -> Iterator[ConsolePage]:
    """A page in a new browser profile, not signed in. `options` are passed to `new_context`."""
    context = browser.new_context(**options)
    try:
        console = ConsolePage(context.new_page(), platform, may_log)
        yield console
        console.check()
    finally:
        context.close()


@contextmanager
def signed_in(
    browser: Browser, platform: Platform, *, acts: bool = False, **options: Any
) -> Iterator[ConsolePage]:
    """A page that is signed in by a link. `options` are passed to `visiting`."""
    with visiting(browser, platform, **options) as console:
        console.page.goto(sign_in_link(platform, acts=acts))
        console.page.get_by_role("button", name="Sign out").wait_for()
        yield console
