"""`hostelry dashboards`: Grafana's dashboard, Prometheus' alert rules, and the scrape for both."""

from typing import Any
from urllib.parse import urlsplit

import typer

from hostelry.cli.dashboards.alert_table import rule_file
from hostelry.cli.dashboards.grafana import grafana_dashboard
from hostelry.cli.home_option import HomeOption, home_at, print_json, settled

dashboards = typer.Typer(
    help="Generate files for Grafana and Prometheus from Hostelry's metrics.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


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
    config, credentials = settled(home_at(home))
    print_yaml(scrape_configs(config.client_url, credentials.openai_api_key, config.https_ca))


def scrape_configs(gateway_url: str, key: str, authorities: str | None = None) -> dict[str, Any]:
    """The two scrapes: the gateway's own page, and that of the copies, which takes longer."""
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
    """Print `value` as YAML, with its keys in their order."""
    import yaml  # completion needs none

    typer.echo(yaml.safe_dump(value, sort_keys=False, width=100), nl=False)
