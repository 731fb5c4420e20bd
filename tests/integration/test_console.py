"""The console in a real browser, against a running platform with real copies."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.integration.console_rig import (
    ConsolePage,
    chromium,
    sign_in_link,
    signed_in,
    visiting,
)
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform
from tests.integration.test_component_fleet import Fleet, specification

from hostelry.home.home import Home

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
PACE = "60"
REFUSED = r"status of 403"
NOT_THERE = r"Failed to load resource|ERR_|status of 50\d"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = Home(tmp_path_factory.mktemp("console") / "home")
    home.root.mkdir()
    home.images.write_text(ECHO_IMAGE)
    with Platform(home.root, "--pace", PACE) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def fleet(platform: Platform) -> Fleet:
    """An endpoint "ep" with the component "base", which has two copies."""
    found = Fleet(platform, most=1)
    found.sagemaker.create_inference_component(
        InferenceComponentName="base",
        EndpointName="ep",
        VariantName="AllTraffic",
        Specification=specification(),
        RuntimeConfig={"CopyCount": 2},
    )
    found.until_status("base")
    return found


def test_a_link_signs_one_browser_in_once(platform: Platform, browser: Browser) -> None:
    link = sign_in_link(platform)
    with visiting(browser, platform) as first:
        first.page.goto(link)
        expect(first.page.get_by_role("heading", name="Fleet")).to_be_visible()
        assert first.page.url.endswith("/console/fleet")
        first.page.get_by_role("button", name="Sign out").click()
        expect(first.page.get_by_role("heading", name="Sign in")).to_be_visible()
    with visiting(browser, platform, may_log=[REFUSED]) as second:
        second.page.goto(link)
        expect(second.page.get_by_role("alert")).to_contain_text("This link was used")


def open_fleet(console: ConsolePage) -> Page:
    """The Fleet view, with the copies of "base" in it."""
    console.open("fleet")
    expect(copies(console.page)).to_have_count(2)
    return console.page


def copies(page: Page, phase: str = "ready") -> Locator:
    return page.locator(f".copy[data-phase='{phase}']").filter(has_text="base")


def test_a_key_opens_a_session_and_a_wrong_one_does_not(
    platform: Platform, browser: Browser
) -> None:
    with visiting(browser, platform, may_log=[REFUSED]) as console:
        console.open("")
        page = console.page
        page.get_by_label("Key", exact=True).fill("guess")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_have_text("This key is not known.")
        page.get_by_label("Key", exact=True).fill(platform.credentials.openai_api_key)
        page.get_by_label("May scale").check()
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("secret access key")
        page.get_by_label("May scale").uncheck()
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
        expect(page.get_by_text("may act")).to_have_count(0)


def test_requests_without_token_or_from_elsewhere_get_nothing(
    platform: Platform, browser: Browser
) -> None:
    with signed_in(browser, platform, acts=True) as console:
        context = console.page.context
        token = console.page.evaluate("localStorage.getItem('hostelry-console-token')")
        assert token
        address, origin = console.address, platform.config.gateway_url
        own = {"X-Hostelry-Csrf": token, "Origin": origin}

        def status(method: str, path: str, headers: dict[str, str]) -> int:
            answer = context.request.fetch(
                f"{address}/{path}",
                method=method,
                headers=headers,
                data={} if method == "POST" else None,
            )
            return answer.status

        # The context's requests carry the session's cookie.
        assert status("GET", "api/audit", own) == 200
        assert status("GET", "api/audit", {}) == 401
        act = "api/acts/scale-component/plan"
        assert status("POST", act, {"Origin": origin}) == 401
        assert status("POST", act, {**own, "Origin": "http://evil.example"}) == 403
        assert status("POST", act, {"X-Hostelry-Csrf": token}) == 403
        assert status("POST", act, own) == 400  # let in: it lacks its arguments
        direct = platform.config.console_address
        assert context.request.get(f"{direct}/console/fleet").status == 403
        assert context.request.get(f"{origin}/internal/sign-in-links").status != 200
        context.clear_cookies()
        assert status("GET", "api/audit", own) == 401


def test_the_fleet_shows_each_copy_and_why_it_is_there(
    platform: Platform, browser: Browser, fleet: Fleet
) -> None:
    with signed_in(browser, platform) as console:
        page = open_fleet(console)
        expect(page.locator(".box")).to_have_count(1)
        expect(page.locator(".box-type")).to_have_text("ml.m5.large")
        expect(page.locator(".lane-cpus .lane-figure")).to_have_text("2/2")
        copies(page).first.focus()
        page.keyboard.press("ArrowDown")
        expect(copies(page).nth(1)).to_be_focused()
        page.keyboard.press("Enter")
        details = page.get_by_role("complementary", name="Details")
        expect(details).to_contain_text("SPREAD: ")
        expect(details).to_contain_text("1 CPUs, 1 GiB")
        expect(details).to_contain_text("This session only reads")
        page.keyboard.press("Escape")
        expect(details).to_contain_text("Nothing selected")
        page.get_by_label("Show").fill("nothing like it")
        expect(page.get_by_text("Nothing matches.")).to_be_visible()
    with signed_in(browser, platform, viewport={"width": 360, "height": 640}) as console:
        page = open_fleet(console)
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) == 0
        copies(page).first.click()
        expect(page.get_by_role("button", name="Close the details")).to_be_visible()
    with signed_in(browser, platform, color_scheme="dark") as console:
        open_fleet(console)


@pytest.mark.thorough
def test_a_copy_that_is_killed_comes_back_in_the_view(
    platform: Platform, browser: Browser, fleet: Fleet
) -> None:
    with signed_in(browser, platform) as console:
        page = open_fleet(console)
        placed = fleet_copies(platform)
        os.kill(placed[0]["pid"], signal.SIGKILL)
        expect(page.get_by_text("ready, 1 restart")).to_be_visible(timeout=60_000)
        expect(copies(page)).to_have_count(2)
        page.get_by_text("ready, 1 restart").click()
        expect(page.get_by_role("complementary", name="Details")).to_contain_text("Last end")


def fleet_copies(platform: Platform) -> list[dict[str, Any]]:
    shown = json.loads(platform.cli("status", "--json").stdout)["state"]["endpoints"]
    (found,) = [it for it in shown if it["name"] == "ep"]
    copies_: list[dict[str, Any]] = found["copies"]
    return copies_


@pytest.mark.thorough
def test_a_component_without_a_place_is_explained(
    platform: Platform, browser: Browser, fleet: Fleet
) -> None:
    needs = {"MinMemoryRequiredInMb": 1024, "NumberOfCpuCoresRequired": 2}
    with signed_in(browser, platform) as console:
        page = open_fleet(console)
        fleet.sagemaker.create_inference_component(
            InferenceComponentName="whale",
            EndpointName="ep",
            VariantName="AllTraffic",
            Specification={**specification(), "ComputeResourceRequirements": needs},
            RuntimeConfig={"CopyCount": 1},
        )
        note = page.get_by_role("region", name="no place")
        expect(note).to_contain_text("whale: 1 copy has no place, of 1")
        expect(note).to_contain_text("2 CPUs")
        expect(note).to_contain_text("What would help")
        console.check()
        fleet.sagemaker.delete_inference_component(InferenceComponentName="whale")
        expect(note).to_have_count(0)


def test_a_component_is_scaled_once_it_is_confirmed(
    platform: Platform, browser: Browser, fleet: Fleet
) -> None:
    with signed_in(browser, platform, acts=True) as console:
        page = open_fleet(console)
        copies(page).first.click()
        page.get_by_role("button", name="Scale component").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Copies").fill("1")
        expect(dialog).to_contain_text("Set the copies of inference component base to 1.")
        expect(dialog).to_contain_text("UpdateInferenceComponentRuntimeConfig")
        console.check()
        dialog.get_by_role("button", name="Cancel").click()
        assert fleet.component()["RuntimeConfig"]["DesiredCopyCount"] == 2
        page.get_by_role("button", name="Scale component").click()
        dialog.get_by_label("Copies").fill("1")
        dialog.get_by_role("button", name="Do it").click()
        expect(dialog).to_have_count(0)
        expect(copies(page)).to_have_count(1, timeout=60_000)
        assert fleet.component()["RuntimeConfig"]["DesiredCopyCount"] == 1
        before = fleet_copies(platform)[0]["id"]
        copies(page).first.click()
        page.get_by_role("button", name="Restart copy").click()
        expect(dialog).to_contain_text("1 copy is replaced")
        dialog.get_by_role("button", name="Do it").click()
        expect(page.locator(f"[data-copy='{before}']")).to_have_count(0, timeout=60_000)
        expect(copies(page)).to_have_count(1, timeout=60_000)
        page.get_by_role("link", name="Acts").click()
        expect(page.get_by_role("row").filter(has_text=before)).to_contain_text("accepted")
        rows = page.get_by_role("row").filter(has_text="base to 1")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("accepted")
        expect(rows.first).to_contain_text("console session")
        expect(rows.last).to_contain_text("begun")
    fleet.scale(2)


@pytest.mark.thorough
def test_a_console_that_is_killed_comes_back_and_its_pages_with_it(
    platform: Platform, browser: Browser, fleet: Fleet
) -> None:
    with signed_in(browser, platform) as console:
        page = open_fleet(console)
        console.allow(NOT_THERE)
        pid = platform.kill("console")
        expect(page.get_by_text("Connecting")).to_be_visible()
        platform.back("console", pid)
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        frozen = [platform.kill(it, signal.SIGSTOP) for it in ("up", "control")]
        expect(page.get_by_role("status")).to_contain_text("Not up to date", timeout=60_000)
        expect(page.locator(".state")).to_have_text("Not up to date")
        expect(copies(page)).to_have_count(2)
        console.check()
        page.get_by_role("link", name="Endpoints").click()
        expect(page.get_by_text("Control has not answered yet.")).to_be_visible()
        page.get_by_role("link", name="Fleet").click()
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        expect(page.get_by_role("status")).to_be_hidden(timeout=60_000)
