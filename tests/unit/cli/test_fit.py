"""`hostelry fit` from its command line: the report, JSON, the chart, the document, refusals."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image
from tests.cases import case, cases
from typer.testing import CliRunner, Result

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.declared.expansion import wanted_state
from hostelry.cli.declared.source import read_sources
from hostelry.cli.main import app

MIX = """
name = "shop"
hours = 0.1
[axes]
cost = { unacceptable = 20.0, target = 0.1 }
[[machines]]
type = "ml.m5.xlarge"
price_per_hour = 0.23
[[models]]
name = "prices"
count = 3
framework = "sklearn"
memory_mb = 300
target_p99_ms = TARGET
seconds = 0.02
image = "sagemaker-scikit-learn:1.2-1-cpu-py3"
artifact = "s3://models/{name}.tar.gz"
traffic = { per_hour = 300.0 }
"""


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["fit", *arguments], catch_exceptions=True)
    if isinstance(result.exception, (TerminalError, UsageError)):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def write(folder: Path, text: str) -> str:
    path = folder / "mix.toml"
    path.write_text(text)
    return str(path)


@pytest.fixture
def mix(tmp_path: Path) -> str:
    return write(tmp_path, MIX.replace("TARGET", "800"))


def test_the_report_the_chart_and_the_document(mix: str, tmp_path: Path) -> None:
    chart, document = tmp_path / "mix.svg", tmp_path / "mix.yaml"
    text = run(mix, "--svg", str(chart), "--write", str(document)).stdout
    assert "shop: 3 models, 0.1 h simulated with 3 seeds" in text
    assert "1. " in text
    assert "\nChoose " in text
    assert "cannot work: batch: prices-0001 is interactive" in text
    assert "not ranked: serverless: its cost is unknown" in text
    assert "latency, cost, scalability: assumed (service times assumed)" in text
    assert "░" in text
    tree = ElementTree.fromstring(chart.read_text())
    texts = [it.text or "" for it in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert any(it.startswith("1. ") for it in texts)
    assert sum(it.startswith("isolation ") for it in texts) == 4
    wanted = wanted_state(read_sources([document]), "arn:aws:iam::111122223333:role/r")
    assert wanted.owner == "shop"
    assert len(wanted.resources) >= 3


def test_json_has_the_same_numbers(mix: str) -> None:
    found = json.loads(run(mix, "--json").stdout)
    (group,) = found["groups"]
    assert group["pick"] == group["ranked"][0]["option"]
    assert set(group["ranked"][0]["axes"]) == set(found["axes"])
    assert len(group["ranked"][0]["trials"]) == 3
    assert "prices-0001 is interactive" in group["refused"]["batch"][0]


def test_how_many_adapters_a_copy_serves_is_unknown_without_a_measurement(tmp_path: Path) -> None:
    model = MIX.partition("[[models]]")[2].replace("count = 3\n", "adapter_of = 'prices-0001'\n")
    text = (MIX + "[[models]]" + model.replace('"prices"', '"x"')).replace("TARGET", "800")
    line = "prices-0001: 1 has calls. How many of them a copy serves is unknown: measure with"
    assert f"\nadapters of {line}" in run(write(tmp_path, text)).stdout
    point = "[[platform.adapter_throughput]]\nrank = 8\nadapters = 4\ntokens_per_s = 1.0\n"
    (group,) = json.loads(run(write(tmp_path, text + point), "--json").stdout)["groups"]
    assert "A copy serves at least 4 of rank 8 before" in group["adapter_limits"][0]


def test_prices_come_from_the_operators_file_if_the_mix_has_none(tmp_path: Path) -> None:
    text = MIX.replace("TARGET", "800").replace("price_per_hour = 0.23\n", "")
    path, prices = write(tmp_path, text), tmp_path / "prices.toml"
    prices.write_text('currency = "USD"\n[instances."ml.m5.xlarge"]\nprice_per_hour = 0.25\n')
    assert "\nChoose " in run(path, "--prices", str(prices)).stdout
    with pytest.raises(TerminalError, match="does not exist"):
        run(path, "--prices", str(tmp_path / "absent.toml"))


def test_groups_are_advised_one_by_one(mix: str) -> None:
    other = MIX.replace("TARGET", "800").partition("[[models]]")[2].replace("prices", "scores")
    text = Path(mix).read_text() + "[[models]]" + other.replace("sklearn", "triton")
    Path(mix).write_text(text)
    shown = run(mix, "--group").stdout
    assert "group shop: 3 models (cpu, interactive, sklearn)" in shown
    assert "group shop-2: 3 models (cpu, interactive, triton)" in shown


def test_a_target_that_nothing_meets_gives_no_document(tmp_path: Path) -> None:
    path, document = write(tmp_path, MIX.replace("TARGET", "1")), tmp_path / "mix.yaml"
    result = CliRunner().invoke(app, ["fit", path, "--write", str(document)])
    assert "No option is acceptable on every axis." in result.stdout
    assert "no acceptable option to write" in str(result.exception)
    assert not document.exists()


def test_the_example_is_printed() -> None:
    assert run("--example").stdout.startswith("# Which hosting option fits these models?")


@cases(
    "arguments, message",
    case("no file", (), "name a file"),
    case("an absent file", ("/nowhere/mix.toml",), "/nowhere/mix.toml cannot be read"),
    case(
        "a file and a deployment",
        ("mix.toml", "--from-live"),
        "--from-live writes a file and reads",
    ),
    case("both", ("--from-live", "--against-live"), "--from-live compares, too"),
    case("records without live", ("mix.toml", "--last", "7d"), "--endpoint and --last go with"),
    case("a chart of no advice", ("mix.toml", "--against-live", "--group"), "do not go with"),
    case("a mix in place of its calls", ("--from-live", "--out", "a.csv"), "place of the calls"),
    case("no platform", ("--from-live", "--home", "/nowhere"), "hostelry up"),
)
def test_refusals(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises((TerminalError, UsageError), match=message):
        run(*arguments)


def test_a_chart_that_cannot_be_written_names_its_file(mix: str, tmp_path: Path) -> None:
    with pytest.raises(TerminalError, match=f"{tmp_path} cannot be written"):
        run(mix, "--svg", str(tmp_path))
    with pytest.raises(
        UsageError, match=r"/nowhere/mix\.svg cannot be written: there is no folder"
    ):
        run(mix, "--svg", "/nowhere/mix.svg")


def test_the_chart_as_png_is_the_same_picture(mix: str, tmp_path: Path) -> None:
    svg, png = tmp_path / "mix.svg", tmp_path / "mix.png"
    run(mix, "--svg", str(svg), "--png", str(png))
    width, height = (int(it) for it in re.findall(r'(?:width|height)="(\d+)"', svg.read_text())[:2])
    with Image.open(png) as picture:
        assert picture.size == (2 * width, 2 * height)
        colours = picture.convert("RGB").getcolors(1 << 24) or []
    shown = {colour for _, colour in colours}
    assert {(255, 255, 255), (0, 0x72, 0xB2), (0xD5, 0x5E, 0)} <= shown


def test_the_picture_of_many_groups_is_smaller_and_a_fault_is_named() -> None:
    from hostelry.cli.chart_image import MAX_PIXELS, draw_png, find_scale

    assert find_scale('<svg width="10" height="10"/>') == 2.0
    assert find_scale('<svg width="1000" height="240000"/>') ** 2 * 24e7 == pytest.approx(
        MAX_PIXELS
    )
    with pytest.raises(TerminalError, match=r"cannot be drawn as PNG: .*; use --svg"):
        draw_png("<p/>")


def test_without_the_extra_png_names_it(
    mix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "hostelry.cli.chart_image", raising=False)
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(TerminalError, match=r"^--png needs resvg_py, which is not installed: inst"):
        run(mix, "--png", str(tmp_path / "mix.png"))


def test_outputs_have_a_place_each_and_not_the_place_of_the_mix(mix: str, tmp_path: Path) -> None:
    text, link = Path(mix).read_text(), tmp_path / "link.toml"
    link.symlink_to(mix)
    for taken in (mix, str(link)):
        with pytest.raises(UsageError, match="would overwrite another file of this command"):
            run(mix, "--write", taken)
    both = str(tmp_path / "both")
    with pytest.raises(UsageError, match=f"--write {both} would overwrite"):
        run(mix, "--svg", both, "--write", both)
    assert Path(mix).read_text() == text
