"""The console's Playground, and its Adapters and cache, on a platform with small real LLMs."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.integration.batch_rig import BASE, OUTSIDE, VECTORS, Batches, serving_llms
from tests.integration.console_rig import ConsolePage, chromium, signed_in
from tests.integration.platform import Platform

from hostelry.cli.environment import client_variables

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

QUESTION = 'Who\'s "there"? $HOME \\n <b>no markup</b>'
LONG = "8000"


@pytest.fixture(scope="module")
def llms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batches]:
    with serving_llms(tmp_path_factory.mktemp("llms")) as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def console(browser: Browser, llms: Batches) -> Iterator[ConsolePage]:
    with signed_in(browser, llms.platform) as page:
        yield page


def column(page: Page, number: int) -> Locator:
    return page.get_by_role("region", name=f"Column {number}", exact=True)


def begin(page: Page, text: str, tokens: str) -> None:
    page.get_by_label("Tokens at most").fill(tokens)
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").first.click()


def answered(page: Page, number: int) -> str:
    """The last answer in a column, once it exists."""
    times = column(page, number).get_by_role("status").first
    expect(times).to_have_text(re.compile(r"first token [\d.]+ m?s .*\d+ tokens"))
    return str(column(page, number).locator(".bubble").last.text_content())


def printed(platform: Platform, code: str, *command: str) -> str:
    """The output of the code, run unchanged with the variables of `hostelry env`."""
    environment = {
        **platform.environment,
        **client_variables(platform.config, platform.credentials),
        "HOSTELRY_HOME": str(platform.home.root),
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        [*command, code], env=environment, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def code_of(box: Locator, client: str) -> str:
    box.get_by_role("button", name=client, exact=True).click()
    return str(box.get_by_label("The request as code").text_content())


def test_answers_stream_side_by_side_and_their_code_gives_the_same(
    console: ConsolePage, llms: Batches
) -> None:
    page = console.page
    console.open(f"playground/{BASE}")
    expect(column(page, 1).get_by_role("combobox")).to_have_value(BASE)
    for number, model in ((2, OUTSIDE), (3, f"{BASE}:fr")):
        page.get_by_role("button", name="Add a column").click()
        column(page, number).get_by_role("combobox").select_option(model)
    page.get_by_label("System prompt").fill("Be brief.")
    begin(page, QUESTION, "24")
    answers = [answered(page, number) for number in (1, 2, 3)]
    assert len(set(answers)) == 3, answers
    expect(column(page, 1).locator(".bubble").first).to_have_text(QUESTION)
    console.check()
    for number in (1, 3):
        box = page.locator(f"#code-{number}")
        box.locator("summary").click()
        found = printed(llms.platform, code_of(box, "openai"), sys.executable, "-c")
        assert found.removesuffix("\n") == answers[number - 1]
        found = printed(llms.platform, code_of(box, "boto3"), sys.executable, "-c")
        assert found.removesuffix("\n") == answers[number - 1]
    streamed = printed(llms.platform, code_of(page.locator("#code-1"), "curl"), "bash", "-c")
    assert streamed.rstrip().endswith("data: [DONE]")
    assert len(re.findall(r'"delta"', streamed)) > 1


def test_a_running_answer_is_stopped(console: ConsolePage, llms: Batches) -> None:
    page = console.page
    console.open(f"playground/{BASE}")
    page.get_by_label("More fields, as JSON").fill('{"ignore_eos": true}')
    begin(page, "Go on and on", LONG)
    expect(column(page, 1).get_by_role("status").first).to_have_text(re.compile("first token"))
    page.get_by_role("button", name="Stop").first.click()
    expect(column(page, 1).get_by_role("status").first).to_have_text(re.compile("stopped"))
    expect(page.get_by_role("button", name="Send").first).to_be_enabled()
    console.open(f"adapters/{BASE}")
    expect(page.get_by_text(re.compile("0 running, 0 waiting"))).to_be_visible()


def test_a_refusal_of_the_model_is_shown(console: ConsolePage) -> None:
    page = console.page
    console.open(f"playground/{VECTORS}")
    begin(page, "Hello", "4")
    expect(column(page, 1).get_by_role("status").first).to_have_text(re.compile(r"^4\d\d: "))


def test_an_invocation_shows_the_raw_answer_and_its_code_works(
    console: ConsolePage, llms: Batches
) -> None:
    page = console.page
    console.open("playground")
    page.get_by_role("tab", name="Invoke").click()
    page.get_by_label("Endpoint / component").select_option(f"drill/{VECTORS}")
    page.get_by_label("Body").fill('{"inputs": ["the sea isn\'t blue"]}')
    page.get_by_role("button", name="Send").last.click()
    expect(page.get_by_text(re.compile("200 · application/json"))).to_be_visible()
    numbers = re.findall(r"-?\d\.\d+", str(page.get_by_label("The answer").text_content()))
    assert len(numbers) > 8
    console.check()
    box = page.locator("#code-invoke")
    box.locator("summary").click()
    for client, command in (("curl", ("bash", "-c")), ("boto3", (sys.executable, "-c"))):
        found = printed(llms.platform, code_of(box, client), *command)
        assert re.findall(r"-?\d\.\d+", found) == numbers


@pytest.mark.thorough
def test_adapters_move_nearer_as_requests_come(console: ConsolePage) -> None:
    page = console.page
    console.open("adapters")
    page.get_by_role("link", name=BASE, exact=True).click()
    row = page.get_by_role("row", name=re.compile("^es "))
    expect(row).to_contain_text("host memory")
    expect(page.get_by_role("img", name=re.compile(r"Page pool of \d+ pages"))).to_be_visible()
    console.check()
    with page.context.expect_page() as opened:
        page.evaluate("open('/console/playground/base:es')")
    other = opened.value
    begin(other, "Hola", "8")
    answered(other, 1)
    other.close()
    expect(row).to_contain_text("pool")
    expect(row).to_contain_text("host 1")
    page.set_viewport_size({"width": 360, "height": 720})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
