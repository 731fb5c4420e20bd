"""`hostelry explain` over control's real account of planned endpoints."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.reconcile.samples import (
    GB,
    NOW,
    Town,
    adapter,
    component,
    deployment,
    endpoint,
    needs,
    variant,
)

from hostelry.base.errors import TerminalError
from hostelry.cli.explain import explanation_document, explanation_lines, list_engines, select
from hostelry.domain.component import (
    ComponentStatus,
    InferenceComponent,
    PlacementStrategy,
    Scheduling,
)
from hostelry.reconcile.placement_report import explained_endpoints
from hostelry.reconcile.record import load_all


@pytest.fixture
def town() -> Iterator[Town]:
    made = Town()
    yield made
    made.close()


def account(town: Town) -> dict[str, Any]:
    (found,) = explained_endpoints(load_all(town.state), town.facts())
    answered: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
    return answered


def packed(one: InferenceComponent) -> InferenceComponent:
    assert one.spec is not None
    scheduling = Scheduling(strategy=PlacementStrategy.BINPACK)
    return replace(one, spec=replace(one.spec, scheduling=scheduling))


def text(town: Town, component: str | None = None) -> str:
    return "\n".join(explanation_lines(account(town), NOW, component))


def test_each_copys_place_and_reason_are_printed(town: Town) -> None:
    limited = replace(needs(2, 16, 4), max_memory_bytes=20 * GB)
    town.add(
        endpoint(deployment(variant(count=2))),
        component("chat", copies=2, requirements=limited),
        packed(component("embed", requirements=needs(0, 1, 0.5))),
    )
    town.settle()
    shown = text(town)
    assert "variant AllTraffic: 2 of ml.big wanted, ManagedInstanceScaling off" in shown
    assert "2 accelerators, 16384 MB and 4 CPUs (devices 0, 1), at most 20480 MB" in shown
    assert (
        "SPREAD: on an instance with the fewest of its copies, 1 here (2 on 2 instances)" in shown
    )
    assert "BINPACK: on the instance that it left the least free, beside 1 other" in shown
    assert "us-west-2a" in shown
    assert "us-west-2b" in shown
    assert "43.5 of 48 free" in shown
    assert "175.0 GiB of 192.0 GiB free" in shown
    assert shown.count("2 of 4 free (devices 2, 3)") == 2
    assert "no place" not in shown


def test_what_has_no_place_is_printed_with_what_would_help(town: Town) -> None:
    town.add(
        endpoint(deployment(variant(count=1))),
        component("chat", copies=3, requirements=needs(2)),
    )
    town.settle()
    shown = text(town)
    assert "chat: 1 of 3 copies has no place" in shown
    assert "needs 2 accelerators, 1024 MB and 1 CPU; no accelerator is free on i-001" in shown
    assert "what would help: another instance: a higher DesiredInstanceCount" in shown
    (document,) = explanation_document(account(town))["unplaced"]
    assert document["component"] == "chat"
    assert document["obstacle"] == "NO_ROOM"
    assert document["short_of"] == ["accelerators"]


def test_the_maximum_is_named_as_the_obstacle(town: Town) -> None:
    town.add(
        endpoint(deployment(variant(count=1, max_instances=1))),
        component("chat", copies=3, requirements=needs(2)),
    )
    town.settle()
    shown = text(town)
    assert "ManagedInstanceScaling 1 to 1 (IDLE_RELEASE)" in shown
    assert "MaxInstanceCount" in shown
    assert "what would help: a higher MaxInstanceCount" in shown


def test_what_can_never_fit_is_printed(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component("huge", requirements=needs(5)))
    town.settle()
    shown = text(town)
    assert "huge: 1 of 1 copy has no place" in shown
    assert "an empty ml.big has 4 accelerators" in shown
    assert "what would help: less in ComputeResourceRequirements" in shown


def test_what_failed_for_another_reason_does_not_lack_a_place(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(status=ComponentStatus.FAILED))
    town.change_component(failure_reason="s3://models/m.tar.gz: Not Found")
    town.settle()
    assert "no place" not in text(town)


def test_one_component_alone_and_an_adapter_with_its_bases_copies(town: Town) -> None:
    town.add(
        endpoint(deployment(variant())),
        component("base"),
        component("other"),
        adapter("spanish"),
    )
    town.settle()
    assert "other" in text(town)
    alone = text(town, "base")
    assert "  base  ready" in alone
    assert "other" not in alone
    of_adapter = text(town, "spanish")
    assert "spanish is an adapter: it is in each copy of base" in of_adapter
    assert "  base  ready" in of_adapter


def test_a_copy_of_a_model_endpoint_has_its_instance_to_itself(town: Town) -> None:
    town.add(endpoint(deployment(variant(model="m"))))
    town.settle()
    shown = text(town)
    assert shown.count("whole") == 3, "CPUs, memory and accelerators"
    assert "a model endpoint's copy has its instance to itself" in shown


def test_programs_get_devices_and_what_is_free(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component("chat", copies=2))
    town.settle()
    document = explanation_document(account(town))
    (instance,) = document["instances"]
    assert instance["free"]["accelerators"] == 2
    assert instance["free_device_ids"] == [2, 3]
    assert sorted(it["device_ids"][0] for it in instance["copies"]) == [0, 1]
    assert all(it["why"].startswith("SPREAD") for it in instance["copies"])
    assert document["unplaced"] == []


@pytest.mark.parametrize("state", ["starting", "empty"])
def test_an_endpoint_without_anything_is_explained_too(town: Town, state: str) -> None:
    town.add(endpoint(deployment(variant(count=0 if state == "empty" else 1))))
    town.pass_once()
    assert text(town).startswith("endpoint ep  ")


def test_engines_of_llms_are_named_with_their_reasons() -> None:
    def shown(component: str | None, endpoint: str = "ep", **cache: str) -> dict[str, Any]:
        answer = {"cache": cache} if cache else {"fault": "it did not answer in time"}
        return {"endpoint": endpoint, "variant": "v1", "component": component, **answer}

    ours, vllm = {"engine": "hostelry", "why_engine": "on CPUs"}, {"engine": "vllm"}
    caches = {
        "a": shown("chat", **ours),
        "b": shown("chat", **ours),
        "c": shown(None, **vllm, why_engine="on a GPU"),
        "d": shown("chat", "other", **ours),
        "silent": shown("chat"),
        "older": shown("chat", kernels="native"),
    }
    assert list_engines(caches, ["ep"]) == [
        {"of": "ep/chat", "engine": "hostelry", "why": "on CPUs", "copies": ["a", "b"]},
        {"of": "ep/v1", "engine": "vllm", "why": "on a GPU", "copies": ["c"]},
    ]


def test_unknown_names_are_refused_with_the_known_ones(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component("chat"), adapter("spanish"))
    town.settle()
    state = [account(town)]
    assert [it["name"] for it in select(state, None, None)] == ["ep"]
    assert [it["name"] for it in select(state, "ep", "spanish")] == ["ep"]
    with pytest.raises(TerminalError, match=r"no inference component chap\. There are: chat, sp"):
        select(state, None, "chap")
    with pytest.raises(TerminalError, match="no endpoint other"):
        select(state, "other", None)
    with pytest.raises(TerminalError, match="There are: none"):
        select([], None, "chat")
