"""Removal by `hostelry rm`: what goes, and what stays as others use it."""

from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from hostelry.cli.models.removal import (
    HeldComponent,
    HeldResources,
    Removal,
    held_component,
    overlaps,
    planned_removal,
    removable_data,
    removal_lines,
)
from hostelry.cli.named import NamedModel, NameKind

HELD = HeldResources(
    components=(
        HeldComponent(name="llama", endpoint="shop", models=("llama-model",)),
        HeldComponent(name="es", endpoint="shop", base="llama", data=("s3://b/es.tar.gz",)),
        HeldComponent(name="fr", endpoint="shop", base="llama", data=("s3://b/shared/fr",)),
        HeldComponent(name="gemma", endpoint="shop", data=("s3://b/gemma/",)),
        HeldComponent(name="far", endpoint="other", models=("common",), data=("s3://b/shared/",)),
    ),
    endpoints={"shop": "shop-2", "other": "other", "wine": "wine", "twin": "twins", "tw2": "twins"},
    configs={
        "shop-2": (),
        "other": (),
        "wine": ("wine", "common"),
        "twins": ("twin",),
        "old": ("old-model",),
    },
    models={
        "llama-model": ("s3://b/llama/",),
        "common": ("s3://b/common/",),
        "wine": ("s3://b/wine.tar.gz",),
        "twin": (),
        "old-model": (),
        "busy": (),
    },
    targets=("inference-component/llama", "endpoint/wine/variant/A", "endpoint/winery/variant/A"),
    model_uses={"busy": "nightly"},
)


def endpoint(name: str) -> NamedModel:
    return NamedModel(kind=NameKind.ENDPOINT, endpoint=name)


def component(name: str, kind: NameKind = NameKind.COMPONENT) -> NamedModel:
    return NamedModel(kind=kind, endpoint="shop", component=name)


@pytest.mark.parametrize(
    ("named", "removal"),
    [
        pytest.param(
            endpoint("shop"),
            Removal(
                targets=("inference-component/llama",),
                adapters=("es", "fr"),
                components=("gemma", "llama"),
                endpoints=("shop",),
                configs=("shop-2",),
                models=("llama-model",),
            ),
            id="an endpoint with its components, adapters, models and targets",
        ),
        pytest.param(
            endpoint("wine"),
            Removal(
                targets=("endpoint/wine/variant/A",),
                endpoints=("wine",),
                configs=("wine",),
                models=("wine",),
                kept=("model common stays: component far uses it",),
            ),
            id="a model of another component stays, and so does a target with a longer name",
        ),
        pytest.param(
            endpoint("twin"),
            Removal(
                endpoints=("twin",),
                kept=("configuration twins stays: endpoint tw2 uses it",),
            ),
            id="a configuration of another endpoint stays, with its models",
        ),
        pytest.param(
            component("llama"),
            Removal(
                targets=("inference-component/llama",),
                adapters=("es", "fr"),
                components=("llama",),
                models=("llama-model",),
            ),
            id="a base with its adapters",
        ),
        pytest.param(
            component("es", NameKind.ADAPTER), Removal(adapters=("es",)), id="an adapter alone"
        ),
    ],
)
def test_what_goes_with_a_name(named: NamedModel, removal: Removal) -> None:
    assert planned_removal([named], HELD) == removal


def test_a_model_that_another_configuration_names_stays() -> None:
    held = replace(HELD, configs={**HELD.configs, "spare": ("wine",)})
    removal = planned_removal([endpoint("wine")], held)
    assert "wine" not in removal.models
    assert "model wine stays: configuration spare uses it" in removal.kept


def test_a_model_of_a_running_job_stays() -> None:
    held = replace(HELD, configs={**HELD.configs, "wine": ("busy",)})
    assert planned_removal([endpoint("wine")], held).kept == (
        "model busy stays: job nightly uses it",
    )


def test_what_an_interrupted_removal_left_goes_by_its_name() -> None:
    removal = planned_removal([], HELD, ["old", "old-model", "unknown"])
    assert (removal.configs, removal.models) == (("old",), ("old-model",))
    kept = planned_removal([], HELD, ["wine"]).kept
    assert "configuration wine stays: endpoint wine uses it" in kept


@pytest.mark.parametrize(
    ("named", "data", "kept"),
    [
        pytest.param(component("es", NameKind.ADAPTER), ("s3://b/es.tar.gz",), "", id="its own"),
        pytest.param(
            component("fr", NameKind.ADAPTER),
            (),
            "data s3://b/shared/fr stays: component far uses it",
            id="not what is in a folder of another",
        ),
        pytest.param(
            component("llama"), ("s3://b/es.tar.gz", "s3://b/llama/"), "shared/fr", id="its models'"
        ),
    ],
)
def test_data_goes_where_no_other_uses_it(
    named: NamedModel, data: tuple[str, ...], kept: str
) -> None:
    removal = planned_removal([named], HELD, with_data=True)
    assert removal.data == data
    assert kept in " ".join(removal.kept)
    assert planned_removal([named], HELD).data == ()


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        pytest.param("s3://b/a", "s3://b/a/", True, id="a folder with and without its slash"),
        pytest.param("s3://b/a/x", "s3://b/a", True, id="an object in a folder"),
        pytest.param("s3://b/a", "s3://b/a/x/y", True, id="the other way round"),
        pytest.param("s3://b/ab", "s3://b/a", False, id="a longer name"),
        pytest.param("s3://c/a", "s3://b/a", False, id="another bucket"),
    ],
)
def test_addresses_overlap(one: str, other: str, is_one: bool) -> None:
    assert overlaps(one, other) is is_one


@pytest.mark.parametrize(
    ("own", "removed"),
    [
        pytest.param(["s3://b/a/", "s3://b/a/x"], ["s3://b/a/"], id="a folder has its objects"),
        pytest.param(["s3://b/"], [], id="never a whole bucket"),
        pytest.param(["s3://b"], [], id="nor one without a slash"),
        pytest.param(["https://h/x"], [], id="nothing elsewhere"),
    ],
)
def test_data_that_is_removed(own: list[str], removed: list[str]) -> None:
    found, kept = removable_data(own, {})
    assert found == removed
    assert bool(kept) is not bool(removed)


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        pytest.param(
            {"components": ("a",), "models": ("m",), "kept": ("model k stays: x uses it",)},
            ["This removes", "  component  a", "  model      m", "model k stays: x uses it"],
            id="what goes and what stays",
        ),
        pytest.param({}, [], id="nothing"),
    ],
)
def test_it_is_shown_first(fields: dict[str, Any], lines: list[str]) -> None:
    assert removal_lines(Removal(**fields)) == lines


def test_many_names_are_counted() -> None:
    lines = removal_lines(Removal(adapters=tuple(f"a{number:03}" for number in range(100))))
    assert len(lines) == 11
    assert lines[-1].endswith("... and 91 more")


class _Sagemaker:
    """Describes one component."""

    def __init__(self, shown: dict[str, Any] | None) -> None:
        self._shown = shown

    def describe_inference_component(self, **_: str) -> dict[str, Any]:
        if self._shown is None:
            message = "Could not find inference component x"
            raise ClientError({"Error": {"Code": "E", "Message": message}}, "Describe")
        return {"EndpointName": "shop", **self._shown}


@pytest.mark.parametrize(
    ("shown", "held"),
    [
        pytest.param(
            {"Specification": {"ModelName": "m"}},
            HeldComponent(name="x", endpoint="shop", models=("m",)),
            id="a model",
        ),
        pytest.param(
            {
                "Specification": {
                    "BaseInferenceComponentName": "llama",
                    "Container": {"ArtifactUrl": "s3://b/a.tar.gz"},
                }
            },
            HeldComponent(name="x", endpoint="shop", base="llama", data=("s3://b/a.tar.gz",)),
            id="an adapter",
        ),
        pytest.param(
            {
                "Specification": {
                    "Container": {
                        "Environment": {
                            "OPTION_MODEL_ID": "s3://b/m/",
                            "HF_MODEL_ID": "org/name",
                            "OUTPUT": "s3://b/others/",
                        }
                    }
                }
            },
            HeldComponent(name="x", endpoint="shop", data=("s3://b/m/",)),
            id="a model's address in a variable, and no other variable's",
        ),
        pytest.param(
            {"Specifications": [{"ModelName": "a"}, {"ModelName": "b"}]},
            HeldComponent(name="x", endpoint="shop", models=("a", "b")),
            id="one by instance type",
        ),
        pytest.param(None, None, id="one that was deleted meanwhile"),
    ],
)
def test_what_a_component_names(shown: dict[str, Any] | None, held: HeldComponent | None) -> None:
    assert held_component(_Sagemaker(shown), "x") == held
