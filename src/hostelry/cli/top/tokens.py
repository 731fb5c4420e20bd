"""Tokens a second of language models, from two of their pages at the gateway. Pure."""

import re
from collections.abc import Mapping

# Of vLLM and of the LLM server alike.
COUNTER = "vllm:generation_tokens_total{"
LABELS = re.compile(r'(component|endpoint|copy)="([^"]*)"')
Counts = Mapping[tuple[str, str], float]


def token_counts(page: str) -> dict[tuple[str, str], float]:
    """Tokens made so far, by (component or else endpoint, copy)."""
    found: dict[tuple[str, str], float] = {}
    for line in page.split("\n"):
        if not line.startswith(COUNTER):
            continue
        labels = dict(LABELS.findall(line))
        name = labels.get("component") or labels.get("endpoint", "")
        key = name, labels.get("copy", "")
        found[key] = found.get(key, 0.0) + float(line.rpartition(" ")[2])
    return found


def token_rates(before: Counts, now: Counts, seconds: float) -> dict[str, float]:
    """Tokens a second by name; a copy that is new, or began again, counts from then on."""
    rates: dict[str, float] = {}
    for (name, copy), count in now.items():
        grown = max(0.0, count - before.get((name, copy), count))
        rates[name] = rates.get(name, 0.0) + grown / max(seconds, 1e-3)
    return {name: round(rate, 1) for name, rate in rates.items()}
