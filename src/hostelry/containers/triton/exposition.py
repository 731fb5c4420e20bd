"""Triton's pages for Prometheus as one, with the model of each among its labels. Pure."""

import re
from collections.abc import Collection, Mapping

SAMPLE = re.compile(r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
TARGET = "target_model"
# Of the whole machine, which each server measures again.
LEFT_OUT = ("nv_cpu_", "nv_gpu_", "nv_energy_", "nv_pinned_")
SUFFIXES = ("_bucket", "_sum", "_count")


def merged(pages: Mapping[str, str]) -> str:
    """One page of several, each family once; the pages are by target, which may be empty."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for target, page in pages.items():
        for line in page.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                rows = heads.setdefault(line.split(" ", 3)[2], [])
                if line not in rows:
                    rows.append(line)
            elif (found := SAMPLE.match(line)) is not None:
                family = family_of(found["name"], heads)
                sample = f"{found['name']}{labels(found['labels'], target)} {found['value']}"
                samples.setdefault(family, []).append(sample)
    kept = [it for it in samples if not it.startswith(LEFT_OUT)]
    lines = (line for it in kept for line in (*heads.get(it, ()), *samples[it]))
    return "".join(f"{line}\n" for line in lines)


def family_of(name: str, known: Collection[str]) -> str:
    """The family of a sample, which a histogram's or a summary's parts share."""
    if name in known:
        return name
    stems = (name.removesuffix(it) for it in SUFFIXES)
    return next((it for it in stems if it in known), name)


def labels(given: str | None, target: str) -> str:
    """The labels of a sample, with the target where there is one."""
    escaped = target.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    parts = [it for it in (given, f'{TARGET}="{escaped}"' if target else None) if it]
    return f"{{{','.join(parts)}}}" if parts else ""
