"""Endpoints, calls and failures in a real browser, on a platform whose models are under load."""

import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from playwright.sync_api import Browser, Locator, Page, expect
from tests.integration.console_rig import ConsolePage, chromium, signed_in
from tests.integration.console_scene import (
    AUDIT,
    BROKEN,
    CHECKOUT,
    GIANT,
    RECOMMEND,
    SHOP,
    Load,
    Scene,
    platform_of,
)
from tests.integration.drill import NO_RETRIES, copies_of
from tests.integration.platform import Platform, until
from tests.selection import first_alone
from tests.unit.console.recorded_answers import endpoint_of, recorded, with_copies

from hostelry.console.delta import without_nulls
from hostelry.console.views import endpoint

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
MARKUP = "<img src=x onerror=document.title=1>"
PRICES = 'currency = "EUR"\n[instances."ml.m5.4xlarge"]\nprice_per_hour = 3600\n'
MS = re.compile(r"^\d[\d.]* m?s$")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_of(tmp_path_factory.mktemp("views") / "home") as started:
        scene = Scene(started)
        scene.deploy()
        scene.deploy_broken()
        for name in (RECOMMEND, AUDIT):
            scene.component_in_service(name)
        with Load(scene, shop=2, checkout=1, rest_s=0.2):
            yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def console(browser: Browser, platform: Platform) -> Iterator[ConsolePage]:
    with signed_in(browser, platform) as page:
        yield page


def figure(page: Page, title: str) -> str:
    """A figure of the chosen target."""
    tile = page.locator("dl.totals > div").filter(has=page.get_by_text(title, exact=True))
    return tile.locator("dd").inner_text()


def invoke(platform: Platform, component: str, body: str) -> tuple[str, bool]:
    """The request id of one call of `shop`, and whether it was answered."""
    client = platform.boto3("sagemaker-runtime", retries=NO_RETRIES)
    try:
        answer = client.invoke_endpoint(
            EndpointName=SHOP, InferenceComponentName=component, Body=body.encode()
        )
    except ClientError as error:
        return str(error.response["ResponseMetadata"]["RequestId"]), False
    answer["Body"].read()
    return str(answer["ResponseMetadata"]["RequestId"]), True


def test_an_endpoint_under_load_shows_rates_percentiles_and_what_has_no_place(
    console: ConsolePage,
) -> None:
    page = console.page
    console.open("endpoints")
    page.get_by_role("link", name=SHOP, exact=True).click()
    expect(page).to_have_url(re.compile(rf"/endpoint/{SHOP}/component/{RECOMMEND}$"))
    for title in ("p50", "p90", "p99"):
        tile = page.locator("dl.totals > div").filter(has=page.get_by_text(title, exact=True))
        expect(tile.locator("dd")).to_have_text(MS)
    latency = page.get_by_role("img", name=re.compile(r"^Latency .* p99 \d"))
    expect(latency).to_be_visible()
    expect(
        page.get_by_role("img", name=re.compile(r"^Requests a second .* requests \d"))
    ).to_be_visible()
    assert float(figure(page, "Requests/s")) > 1
    targets = page.get_by_role("region", name="Targets")
    giant = targets.get_by_role("row").filter(has_text=GIANT)
    expect(giant).to_contain_text("a copy needs 63488 MB")
    expect(page.get_by_role("heading", name="Copies: 3 of 3 ready")).to_be_visible()
    page.get_by_role("link", name="1 h").click()
    expect(page).to_have_url(re.compile(r"minutes=60$"))
    expect(latency).to_be_visible()
    page.get_by_role("region", name="Targets").get_by_role("link", name=AUDIT).click()
    expect(page.get_by_role("heading", name=AUDIT, exact=True)).to_be_visible()


def test_costs_are_those_of_the_command_with_idle_and_unknown_prices_named(
    console: ConsolePage, platform: Platform
) -> None:
    page = console.page
    console.open("cost")
    expect(page.get_by_text("There are no prices")).to_be_visible()
    platform.home.prices.write_text(PRICES)

    def read_costs() -> dict[str, float | None]:
        shown = json.loads(platform.cli("cost", "--by", "component", "--json").stdout)
        return {it["name"]: it["amount"] for it in shown["rows"]}

    until(lambda: read_costs().get(RECOMMEND), "instances are recorded, every 10 s", 30)
    page.get_by_role("button", name="Refresh").click()

    def line(table: str, name: str) -> Locator:
        rows = page.get_by_role("region", name=table, exact=True).get_by_role("row")
        return rows.filter(has_text=name).first

    for name in read_costs():
        expect(line("Components", name)).to_be_visible()
    expect(line("Components", RECOMMEND)).to_contain_text(re.compile(r"\d+\.\d{4}"))
    expect(line("Endpoints", CHECKOUT)).to_contain_text("unknown")
    expect(line("Tenants", "(no tenant)")).to_be_visible()
    expect(line("Idle", SHOP)).to_contain_text("not reserved by any copy")
    expect(line("Steps", SHOP)).to_contain_text("deploy")
    expect(page.get_by_text('instances."ml.m5.large"')).to_be_visible()
    console.check()


@pytest.mark.thorough
def test_an_endpoint_that_is_not_there_names_those_that_are(console: ConsolePage) -> None:
    console.open("endpoint/nothing")
    expect(console.page.get_by_text("There is no endpoint nothing.")).to_be_visible()
    expect(console.page.get_by_role("link", name=CHECKOUT)).to_be_visible()


def test_a_failure_has_its_cause_and_leads_to_its_endpoint(console: ConsolePage) -> None:
    page = console.page
    console.open("failures")
    failed = page.get_by_role("listitem").filter(has_text=BROKEN)
    expect(failed).to_contain_text("The model server exited with code 3")
    failed.get_by_text("What it printed last").click()
    expect(failed.get_by_role("group", name="Last log lines")).to_contain_text(
        "last words, line 30"
    )
    expect(failed).to_contain_text(f"hostelry logs {BROKEN}")
    unplaced = page.get_by_role("listitem").filter(has_text=GIANT)
    expect(unplaced).to_contain_text("the largest free block is")
    console.check()
    failed.get_by_role("link", name="Show the endpoint").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(BROKEN)
    expect(page.get_by_text("The model server exited with code 3")).to_be_visible()


@pytest.mark.thorough
def test_a_copy_that_is_killed_while_one_looks_is_shown_with_its_end(
    console: ConsolePage, platform: Platform
) -> None:
    page = console.page
    copy, pid = sorted(copies_of(platform, RECOMMEND).items())[0]
    console.open(f"endpoint/{SHOP}/component/{RECOMMEND}")
    row = page.get_by_role("region", name="Copies").get_by_role("row").filter(has_text=copy)
    expect(row).to_contain_text("ready")
    os.kill(pid, signal.SIGKILL)
    expect(row).to_contain_text(re.compile(r"ended .* ago"))
    expect(row).to_contain_text("ready")
    row.click()
    expect(page.get_by_role("heading", name=f"Copy {copy}")).to_be_visible()
    expect(page.get_by_text("signal 9").last).to_be_visible()
    console.check()
    console.open("failures")
    group = page.get_by_role("listitem").filter(has_text=copy).filter(has_text="signal 9")
    expect(group).to_contain_text("ended and was started again")
    group.get_by_role("link", name="Show the endpoint").click()
    expect(page).to_have_url(re.compile(rf"/endpoint/{SHOP}/component/{RECOMMEND}$"))


@pytest.mark.thorough
def test_a_slow_call_is_in_the_list_and_its_time_is_shown_hop_by_hop(
    console: ConsolePage, platform: Platform
) -> None:
    page = console.page
    request_id, _ = invoke(platform, RECOMMEND, json.dumps({"wait_s": 1.5}))
    console.open(f"calls?endpoint={SHOP}")
    row = page.get_by_role("row").filter(has_text=request_id[:8])
    expect(row).to_contain_text(re.compile(r"(1\.[5-9]|[2-9]\.)\d+ s"))  # a busy machine adds some
    console.check()
    row.get_by_role("link").click()
    expect(
        page.get_by_text(re.compile(r"^\d+ % of the time went to the model server c-"))
    ).to_be_visible()
    hops = page.get_by_role("region", name="Hops").get_by_role("rowheader")
    expect(hops).to_have_text(["arrival", re.compile("^copy c-"), "passing on"])
    expect(page.get_by_text("copies by RANDOM")).to_be_visible()


@pytest.mark.thorough
def test_a_call_has_what_its_copy_printed_then(console: ConsolePage, platform: Platform) -> None:
    page = console.page
    request_id, _ = invoke(platform, AUDIT, "print the ledger is open")
    console.open(f"call/{request_id}")
    log = page.get_by_role("group", name="Last log lines")

    def line_is_there() -> bool:
        page.get_by_role("button", name="Refresh").click()
        return "the ledger is open" in (log.first.inner_text() if log.count() else "")

    for _ in range(60):  # lines are collected each second
        if line_is_there():
            break
        page.wait_for_timeout(250)
    expect(log).to_contain_text("the ledger is open")


def test_a_failed_call_and_what_its_model_answered_are_text_and_never_markup(
    console: ConsolePage, platform: Platform
) -> None:
    page = console.page
    request_id, was_answered = invoke(platform, RECOMMEND, json.dumps({"refuse": MARKUP}))
    assert not was_answered
    console.open(f"call/{request_id}")
    expect(page.get_by_text(MARKUP)).to_be_visible()
    console.check()
    console.open("failures")
    expect(page.get_by_text(MARKUP)).to_be_visible()
    console.open(f"calls?order=failed&endpoint={SHOP}")
    expect(page.get_by_role("row").filter(has_text=request_id[:8])).to_contain_text(MARKUP)
    assert page.locator("main img").count() == 0


@pytest.mark.thorough
def test_an_unknown_call_is_explained(console: ConsolePage) -> None:
    page = console.page
    console.open("calls")
    page.get_by_label("Find a call").fill("6f0f3b1e-unknown")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("No call 6f0f3b1e-unknown is kept.")).to_be_visible()
    expect(page.get_by_role("link", name="those that failed")).to_be_visible()


@pytest.mark.thorough
def test_a_thousand_components_draw_the_rows_in_sight(console: ConsolePage) -> None:
    page = console.page
    snapshot = f"event: snapshot\ndata: {json.dumps(crowded())}\n\n"
    page.route(
        "**/console/live*",
        lambda route: route.fulfill(body=snapshot, content_type="text/event-stream"),
    )
    console.open(f"endpoint/{SHOP}/component/{RECOMMEND}")
    for label in ("Targets", "Copies"):
        table = page.get_by_role("region", name=label).get_by_role("table")
        expect(table).to_have_attribute("aria-rowcount", re.compile(r"^10\d\d$"))
        assert table.locator("tbody tr").count() < 120
    last = page.get_by_role("link", name="tenant-999")
    assert last.count() == 0
    page.get_by_role("region", name="Targets").evaluate(
        "it => scrollTo(0, it.offsetTop + it.offsetHeight - 500)"
    )
    expect(last).to_be_visible()


def crowded() -> dict[str, Any]:
    """The document of an endpoint with a thousand components and a thousand copies."""
    state = with_copies(recorded("state"), 1000)
    shop = endpoint_of(state, SHOP)
    one = {**shop["components"][1], "base": RECOMMEND}
    shop["components"] += [{**one, "name": f"tenant-{number:03}"} for number in range(1000)]
    params = {"name": SHOP, "kind": "component", "target": RECOMMEND}
    shown: dict[str, Any] = without_nulls(endpoint.document({"state": state}, params, 1795672900.0))
    return shown


@pytest.mark.parametrize(
    "path", first_alone([f"endpoint/{CHECKOUT}", "endpoints", "calls", "failures"])
)
def test_a_phone_shows_it_without_scrolling_sideways(
    browser: Browser, platform: Platform, path: str
) -> None:
    size = {"width": 360, "height": 740}
    with signed_in(browser, platform, viewport=size, color_scheme="dark") as console:
        console.open(path)
        expect(console.page.locator("main h1")).to_be_visible()
        expect(console.page.get_by_text("Live", exact=True)).to_be_visible()
        assert console.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
