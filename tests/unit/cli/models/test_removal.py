"""Removal by `hostelry rm`: removed resources, and resources that stay because others use them."""

from typing import Any

from botocore.exceptions import ClientError
from msgspec.structs import replace
from tests.cases import case, cases

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


@cases(
    "named, removal",
    case(
        "an endpoint with its components, adapters, models and targets",
        endpoint("shop"),
        Removal(
            targets=("inference-component/llama",),
            adapters=("es", "fr"),
            components=("gemma", "llama"),
            endpoints=("shop",),
            configs=("shop-2",),
            models=("llama-model",),
        ),
    ),
    case(
        "a model of another component stays, and so does a target with a longer name",
        endpoint("wine"),
        Removal(
            targets=("endpoint/wine/variant/A",),
            endpoints=("wine",),
            configs=("wine",),
            models=("wine",),
            kept=("model common stays: component far uses it",),
        ),
    ),
    case(
        "a configuration of another endpoint stays, with its models",
        endpoint("twin"),
        Removal(endpoints=("twin",), kept=("configuration twins stays: endpoint tw2 uses it",)),
    ),
    case(
        "a base with its adapters",
        component("llama"),
        Removal(
            targets=("inference-component/llama",),
            adapters=("es", "fr"),
            components=("llama",),
            models=("llama-model",),
        ),
    ),
    case("an adapter alone", component("es", NameKind.ADAPTER), Removal(adapters=("es",))),
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


@cases(
    "named, data, kept",
    case("its own", component("es", NameKind.ADAPTER), ("s3://b/es.tar.gz",), ""),
    case(
        "not what is in a folder of another",
        component("fr", NameKind.ADAPTER),
        (),
        "data s3://b/shared/fr stays: component far uses it",
    ),
    case("its models'", component("llama"), ("s3://b/es.tar.gz", "s3://b/llama/"), "shared/fr"),
)
def test_data_goes_where_no_other_uses_it(
    named: NamedModel, data: tuple[str, ...], kept: str
) -> None:
    removal = planned_removal([named], HELD, with_data=True)
    assert removal.data == data
    assert kept in " ".join(removal.kept)
    assert planned_removal([named], HELD).data == ()


@cases(
    "one, other, is_one",
    case("a folder with and without its slash", "s3://b/a", "s3://b/a/", True),
    case("an object in a folder", "s3://b/a/x", "s3://b/a", True),
    case("the other way round", "s3://b/a", "s3://b/a/x/y", True),
    case("a longer name", "s3://b/ab", "s3://b/a", False),
    case("another bucket", "s3://c/a", "s3://b/a", False),
)
def test_addresses_overlap(one: str, other: str, is_one: bool) -> None:
    assert overlaps(one, other) is is_one


@cases(
    "own, removed",
    case("a folder has its objects", ["s3://b/a/", "s3://b/a/x"], ["s3://b/a/"]),
    case("never a whole bucket", ["s3://b/"], []),
    case("nor one without a slash", ["s3://b"], []),
    case("nothing elsewhere", ["https://h/x"], []),
)
def test_data_that_is_removed(own: list[str], removed: list[str]) -> None:
    found, kept = removable_data(own, {})
    assert found == removed
    assert bool(kept) is not bool(removed)


@cases(
    "fields, lines",
    case(
        "what goes and what stays",
        {"components": ("a",), "models": ("m",), "kept": ("model k stays: x uses it",)},
        ["This removes", "  component  a", "  model      m", "model k stays: x uses it"],
    ),
    case("nothing", {}, []),
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


@cases(
    "shown, held",
    case(
        "a model",
        {"Specification": {"ModelName": "m"}},
        HeldComponent(name="x", endpoint="shop", models=("m",)),
    ),
    case(
        "an adapter",
        {
            "Specification": {
                "BaseInferenceComponentName": "llama",
                "Container": {"ArtifactUrl": "s3://b/a.tar.gz"},
            }
        },
        HeldComponent(name="x", endpoint="shop", base="llama", data=("s3://b/a.tar.gz",)),
    ),
    case(
        "a model's address in a variable, and no other variable's",
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
    ),
    case(
        "one by instance type",
        {"Specifications": [{"ModelName": "a"}, {"ModelName": "b"}]},
        HeldComponent(name="x", endpoint="shop", models=("a", "b")),
    ),
    case("one that was deleted meanwhile", None, None),
)
def test_what_a_component_names(shown: dict[str, Any] | None, held: HeldComponent | None) -> None:
    assert held_component(_Sagemaker(shown), "x") == held
