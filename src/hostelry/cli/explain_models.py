"""Models of multi-model copies, as `hostelry explain` prints them: asked of agents, then text."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.cli.agent_request import ask_agent
from hostelry.cli.status_text import columns, memory_text

SHOWN_MODELS = 20
SHOWN_EVICTIONS = 5
JsonObject = Mapping[str, Any]


def models_by_copy(endpoints: Sequence[JsonObject], key: str) -> dict[str, Any]:
    """The account of each multi-model copy's models by its id; a text where its agent is silent."""
    return {
        copy["id"]: ask_agent(
            copy["models_address"].partition("/target-models/")[0],
            f"/models/{copy['id']}",
            key,
        )
        for endpoint in endpoints
        for copy in endpoint["copies"]
        if copy.get("models_address")
    }


def model_lines(copy_id: str, found: JsonObject | str) -> list[str]:
    """A copy's models as text: those in memory by their last use, and the last evictions."""
    if isinstance(found, str):
        return [f"  models of {copy_id}: {found}"]
    models = sorted(found["models"], key=lambda it: (not it["loaded"], it["last_used_s"]))
    loaded = [it for it in models if it["loaded"]]
    used_bytes = sum(it["memory_bytes"] for it in loaded)
    accelerator = found.get("accelerator_bytes")
    taken = sum(it["accelerator_bytes"] for it in loaded)
    lines = [
        f"  models of {copy_id}: {len(loaded)} in memory ("
        f"{memory_text(used_bytes)} of {memory_text(found['memory_bytes'])}"
        + (
            f", {memory_text(taken)} of {memory_text(accelerator)} declared of the accelerator"
            if accelerator
            else ""
        )
        + "), "
        f"{sum(it['on_disk'] for it in models)} on disk, {len(models)} known"
    ]
    rows = [["MODEL", "MEMORY", "REQUESTS NOW", "LAST USE", "HITS", "LOAD", "DOWNLOAD"]]
    rows += [_cells(it) for it in loaded[:SHOWN_MODELS]]
    lines += [f"    {line}" for line in columns(rows)] if loaded else []
    if len(loaded) > SHOWN_MODELS:
        lines.append(f"    and {len(loaded) - SHOWN_MODELS} more; --json has all")
    lines += [
        f"    {stuck['target']} may be in the server still: {stuck['reason']}"
        for stuck in found.get("stuck", ())[:SHOWN_MODELS]
    ]
    lines += [
        f"    {gone['target']} left the {gone['tier']}: {gone['reason']}"
        for gone in found["evictions"][-SHOWN_EVICTIONS:]
    ]
    return lines


def _cells(model: JsonObject) -> list[str]:
    return [
        model["target"] + (" (pinned)" if model["pinned"] else ""),
        memory_text(model["memory_bytes"]),
        str(model["in_flight"]),
        f"{model['last_used_s']:.0f} s ago",
        str(model["hits"]),
        f"{model['load_s']:.2f} s",
        f"{model['download_s']:.2f} s",
    ]
