"""The console in a real browser, against a running platform with real copies."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from tests.integration.console_rig import chromium, sign_in_link, visiting
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform
from tests.integration.test_component_fleet import Fleet, specification

from hostelry.server.home import Home

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
    found = Fleet(platform)
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
