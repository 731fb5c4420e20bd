"""Panels and rules use metrics and labels that the pages have, and valid PromQL."""

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.cases import case, cases
from tests.unit.cli.dashboards.promql import Reader
from tests.unit.control.test_exposition import Page
from typer.testing import CliRunner

from hostelry.cli.dashboards.command import SELECTED, expression, grafana_dashboard, scrape_configs
from hostelry.cli.dashboards.tables import ROWS, RULES, rule_file
from hostelry.cli.main import app
from hostelry.containers.lmi.engine.backend import BackendStats
from hostelry.containers.lmi.metrics.exposition import Scrape
from hostelry.containers.lmi.metrics.measurements import Measurements
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.control.copy_routes import HEADS

# Labels that /metrics/copies adds to the labels of the copies' own pages.
COPY_LABELS = {"account", "region", "endpoint", "variant", "component", "copy"}
# Labels of families that have no sample until something happens.
LATER_LABELS = {"adapter", "state", "status"}
QUERIES = [
    pytest.param(text, id=f"{row.title}: {panel.title} {number}")
    for row in ROWS
    for panel in row.panels
    for number, (text, _) in enumerate(panel.queries)
] + [pytest.param(it.expression, id=it.name) for it in RULES]


def read(text: str) -> Reader:
    return Reader(expression(text, SELECTED.replace("$endpoint", ".*"), "1m")).read()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str]]:
    """Names and labels of the samples of every page, as the servers make them."""
    page = Page(Path(tmp_path_factory.mktemp("metrics")))
    scrape = Scrape(
        model_name="m",
        measured=Measurements(),
        stats=BackendStats(),
        in_flight=0,
        max_loras=None,
        now=0.0,
    )
    texts = [page.exposition.text(), scrape.text(), PredictiveMetrics().page()]
    page.metrics.close()
    names = {name for name, _ in HEADS}
    labels = COPY_LABELS | LATER_LABELS
    for text in texts:
        for family in text_string_to_metric_families(text.decode()):
            labels |= {label for sample in family.samples for label in sample.labels}
        names |= typed_names(text.decode())
    return names, labels


def typed_names(text: str) -> set[str]:
    """The names of samples that a page declares, with all names of histograms."""
    found = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        found |= {f"{name}{part}" for part in parts}
    return found


@pytest.mark.parametrize("text", QUERIES)
def test_an_expression_names_what_the_pages_have(
    text: str, pages: tuple[set[str], set[str]]
) -> None:
    names, labels = pages
    found = read(text)
    assert found.metrics
    assert found.metrics - names == set()
    assert found.labels - labels == set()


@cases(
    "text",
    case("an open parenthesis", "sum by (a) (rate(x[5m])"),
    case("a rate without a range", "rate(x)"),
    case("a range without a rate", "sum(x[5m])"),
    case("no such function", "rates(x[5m])"),
    case("matchers without a comma", 'x{a="b" c="d"}'),
    case("two operators", "x > > 1"),
)
def test_the_reader_refuses_what_is_no_promql(text: str) -> None:
    with pytest.raises(AssertionError):
        Reader(text).read()


def test_the_dashboard_can_be_imported_as_it_is() -> None:
    dashboard = grafana_dashboard()
    shown = [
        *dashboard["panels"],
        *(it for row in dashboard["panels"] for it in row.get("panels", ())),
    ]
    numbers = [it["id"] for it in shown]
    assert len(set(numbers)) == len(numbers) == len(ROWS) + sum(len(it.panels) for it in ROWS)
    places = [tuple(it["gridPos"].values()) for it in shown]
    assert len(set(places)) == len(places), "no panel is over another"
    legends = [it["legendFormat"] for panel in shown for it in panel.get("targets", ())]
    assert all("{{" in it or it.replace(" ", "").replace("/", "").isalnum() for it in legends)
    assert CliRunner().invoke(app, ["dashboards", "grafana"]).exit_code == 0


def test_the_rule_file_is_yaml_with_unique_names() -> None:
    output = CliRunner().invoke(app, ["dashboards", "alerts"]).output
    assert yaml.safe_load(output) == rule_file()
    (group,) = rule_file()["groups"]
    names = [it["alert"] for it in group["rules"]]
    assert len(set(names)) == len(names) > 10
    assert all(re.fullmatch(r"[0-9]+[smh]", it["for"]) for it in group["rules"])
    assert all(it["annotations"]["description"] for it in group["rules"])


def test_the_scrape_has_the_address_and_the_key() -> None:
    own, copies = scrape_configs("http://127.0.0.1:8787", "sk-x")["scrape_configs"]
    assert own["static_configs"] == [{"targets": ["127.0.0.1:8787"]}]
    assert (own["metrics_path"], copies["metrics_path"]) == ("/metrics", "/metrics/copies")
    assert own["authorization"] == {"credentials": "sk-x"}
