"""`hostelry dashboards`: Grafana's dashboard, Prometheus' alert rules, and the scrape for both."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import typer

from hostelry.cli.dashboards.tables import (
    MATCH,
    RANGE,
    ROWS,
    DashboardPanel,
    DashboardRow,
    rule_file,
)
from hostelry.cli.home_option import HomeOption, home_at, load_home, print_json

dashboards = typer.Typer(
    help="Generate files for Grafana and Prometheus from Hostelry's metrics.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
WIDTH, COLUMNS, HEIGHT = 24, 3, 8
SOURCE = {"type": "prometheus", "uid": "${source}"}
SELECTED = 'endpoint=~"$endpoint"'


@dashboards.command(short_help="Print a Grafana dashboard to import.")
def grafana() -> None:
    """Print a Grafana dashboard as JSON. Import it with Dashboards, New, Import.

    Example: hostelry dashboards grafana > hostelry.json
    """
    print_json(grafana_dashboard())


@dashboards.command(short_help="Print alert rules for Prometheus.")
def alerts() -> None:
    """Print a file of alert rules for Prometheus. List it under `rule_files` in prometheus.yml.

    Example: hostelry dashboards alerts > hostelry-alerts.yml
    """
    print_yaml(rule_file())


@dashboards.command(short_help="Print the scrape configuration of this hostelry.")
def scrape(home: HomeOption = None) -> None:
    """Print `scrape_configs` for prometheus.yml, with this platform's address and key.

    The key is a secret. It also gives access to the OpenAI routes.

    Example: hostelry dashboards scrape
    """
    config, credentials = load_home(home_at(home))
    print_yaml(scrape_configs(config.client_url, credentials.openai_api_key, config.https_ca))


def scrape_configs(gateway_url: str, key: str, authorities: str | None = None) -> dict[str, Any]:
    """The scrapes of the gateway's page, and of the copies' page, which takes longer."""
    address = urlsplit(gateway_url)
    tls = {"tls_config": {"ca_file": authorities}} if authorities else {}
    return {
        "scrape_configs": [
            {
                "job_name": name,
                "metrics_path": path,
                "scheme": address.scheme,
                "scrape_interval": interval,
                "scrape_timeout": timeout,
                "authorization": {"credentials": key},
                **tls,
                "static_configs": [{"targets": [address.netloc]}],
            }
            for name, path, interval, timeout in (
                ("hostelry", "/metrics", "5s", "5s"),
                ("hostelry-copies", "/metrics/copies", "15s", "10s"),
            )
        ]
    }


def print_yaml(value: Any) -> None:
    """Print `value` as YAML, with keys in their given order."""
    import yaml  # imported here, because completion does not need it

    typer.echo(yaml.safe_dump(value, sort_keys=False, width=100), nl=False)


def grafana_dashboard(rows: Iterable[DashboardRow] = ROWS) -> dict[str, Any]:
    """The dashboard for Grafana's import. It has variables for data source and endpoints."""
    panels: list[dict[str, Any]] = []
    top, number = 0, 1
    for row in rows:
        head = _row(row, number, top)
        number, top = number + 1, top + 1
        inside = [
            _panel(panel, number + at, top + at // COLUMNS * HEIGHT, at % COLUMNS)
            for at, panel in enumerate(row.panels)
        ]
        number += len(inside)
        if row.is_open:
            panels += [head, *inside]
            top += -(-len(inside) // COLUMNS) * HEIGHT
        else:
            panels.append({**head, "panels": inside})
    return {
        "title": "Hostelry",
        "uid": "hostelry",
        "tags": ["hostelry"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def expression(text: str, match: str = SELECTED, interval: str = "$__rate_interval") -> str:
    """A panel's expression with the selected endpoints and the interval filled in."""
    return text.replace(MATCH, match).replace(RANGE, interval)


def _row(row: DashboardRow, number: int, top: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": not row.is_open,
        "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
        "panels": [],
    }


def _panel(panel: DashboardPanel, number: int, top: int, column: int) -> dict[str, Any]:
    width = WIDTH // COLUMNS
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.words,
        "datasource": SOURCE,
        "gridPos": {"x": column * width, "y": top, "w": width, "h": HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 8}},
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": expression(text),
                "legendFormat": legend,
            }
            for at, (text, legend) in enumerate(panel.queries)
        ],
    }


def _variables() -> list[dict[str, Any]]:
    query = "label_values(hostelry_requests_total, endpoint)"
    return [
        {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "endpoint",
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": "endpoint"},
            "definition": query,
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        },
    ]
