"""Grafana's dashboard of the panel table. Pure.

Source: Grafana documentation, Dashboard JSON model; Prometheus template variables.
"""

from collections.abc import Iterable
from typing import Any

from hostelry.cli.dashboards.panel_table import (
    MATCH,
    RANGE,
    ROWS,
    DashboardPanel,
    DashboardRow,
)

WIDTH, COLUMNS, HEIGHT = 24, 3, 8
SOURCE = {"type": "prometheus", "uid": "${source}"}
SELECTED = 'endpoint=~"$endpoint"'


def grafana_dashboard(rows: Iterable[DashboardRow] = ROWS) -> dict[str, Any]:
    """The dashboard as Grafana imports it; variables choose its source and endpoints."""
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
