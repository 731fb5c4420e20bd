from collections.abc import Mapping
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.files import FoundFile
from hostelry.cli.deploy.model_formats import Task
from hostelry.cli.deploy.plan import (
    DeployAccount,
    DeployOptions,
    DeploySource,
    ModelDeployment,
    ScalingOrder,
    disk_need,
    plan_deployment,
)
from hostelry.cli.deploy.recognise import DeployKind, Recognised
from hostelry.cli.deploy.reservation import (
    MIB,
    Machine,
    check_instance_type,
    copies_within,
    reservation,
)
from hostelry.cli.deploy.run import PastDeployment, usual_s
from hostelry.cli.deploy.source import AdapterSource, Found, Origin, adapters_in
from hostelry.cli.deploy.text import instances_text, machine_text
from hostelry.domain.shape import Requirements, Shape

GIB = 1024**3
LAPTOP = Machine(
    cpus=4, accelerators=0, memory_bytes=16 * GIB, free_bytes=8 * GIB, free_disk_bytes=50 * GIB
)
SERVER = Machine(
    cpus=64, accelerators=8, memory_bytes=512 * GIB, free_bytes=400 * GIB, free_disk_bytes=GIB
)
CONFIG = {
    "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
    "hidden_size": 576, "max_position_embeddings": 8192, "dtype": "bfloat16",
}  # fmt: skip
LLM = Recognised(kind=DeployKind.LLM, title="an LLM", task=Task.CHAT, config=CONFIG)
SKLEARN = Recognised(
    kind=DeployKind.FRAMEWORK, title="a file", framework="sklearn", version="1.2", num_features=4
)
CODE = Recognised(
    kind=DeployKind.FRAMEWORK, title="code", framework="sklearn", version="1.2", code_folder=""
)
TRITON = Recognised(kind=DeployKind.TRITON, title="a repository")
IMAGE = Recognised(kind=DeployKind.IMAGE, title="an image")
ACCOUNT = DeployAccount(region="us-east-1", account_id="111122223333")


def folder(*names: str, place: Origin = Origin.FOLDER, **more: Any) -> Found:
    files = tuple(FoundFile(name=it, size_bytes=100, path=f"/m/{it}") for it in names)
    return Found(given="./m", place=place, files=files, **more)


def options(**given: Any) -> DeployOptions:
    return DeployOptions(**{"name": "chat", "environment": {}, **given})


def deployment(
    recognised: Recognised = LLM,
    found: Found | None = None,
    adapters: tuple[AdapterSource, ...] = (),
    present_type: str | None = None,
    content: str = "",
    **given: Any,
) -> ModelDeployment:
    found = found or folder("config.json", "model.safetensors")
    every = [*found.files, *(it for adapter in adapters for it in adapter.files)]
    digests = {it.path: f"{hash(it.path) % 10**6:064d}{content}" for it in every}
    if found.archive:
        digests[found.archive.path] = "f" * 64
    source = DeploySource(found=found, recognised=recognised, adapters=adapters, digests=digests)
    reserved = reservation(recognised, 270_000_000, LAPTOP, None)
    return plan_deployment(source, reserved, options(**given), ACCOUNT, present_type)


def test_the_memory_of_an_llm_is_that_of_its_parts() -> None:
    found = reservation(LLM, 269_060_552, LAPTOP, None)
    parts = dict(found.parts)
    # 2 x layers x heads x size x bytes, for four texts of 4,096 tokens
    assert parts["cache of 4 texts"] == 2 * 30 * 3 * 64 * 2 * 4 * 4096
    assert parts["weights"] == 269_060_552
    assert found.memory_mb == 1152 >= sum(parts.values()) / MIB
    assert found.requirements.cpus == 4.0


@cases(
    "recognised, machine, memory_mb, expected",
    case("an LLM takes an accelerator", LLM, SERVER, None, (8.0, 1.0, 1152)),
    case("a file of scikit-learn does not", SKLEARN, SERVER, None, (1.0, 0.0, 1152)),
    case("--memory-mb to the megabyte", LLM, LAPTOP, 300, (4.0, 0.0, 300)),
    case("an image", IMAGE, LAPTOP, None, (1.0, 0.0, 512)),
)
def test_the_reservation_of_a_copy(
    recognised: Recognised,
    machine: Machine,
    memory_mb: int | None,
    expected: tuple[float, float, int],
) -> None:
    found = reservation(recognised, 269_060_552, machine, memory_mb)
    asked = found.requirements
    assert (asked.cpus, asked.accelerators, found.memory_mb) == expected


def test_the_cache_of_a_config_that_does_not_say_is_nothing() -> None:
    odd = Recognised(kind=DeployKind.LLM, title="", config={"num_hidden_layers": "many"})
    assert dict(reservation(odd, 0, LAPTOP, None).parts)["cache of 4 texts"] == 0


@cases(
    "given, present_type, expected",
    case("room for one more, for an update in place", {}, None, "ml.m5.2xlarge"),
    case("for all copies and one more", {"copies": 3}, None, "ml.m5.4xlarge"),
    case("for the most copies", {"max_copies": 9}, None, "ml.m5.12xlarge"),
    case("what is there stays", {}, "ml.m5.xlarge", "ml.m5.xlarge"),
    case("unless no copy fits there", {}, "ml.m5.large", "ml.m5.2xlarge"),
    case("given", {"instance_type": "ml.g5.xlarge"}, "ml.m5.large", "ml.g5.xlarge"),
)
def test_the_instance_type(
    given: Mapping[str, Any], present_type: str | None, expected: str
) -> None:
    assert deployment(present_type=present_type, **given).config.instance_type == expected


def test_names_follow_from_the_content() -> None:
    one, same, other = deployment(), deployment(), deployment(content="x")
    assert one == same
    assert one.model.name != other.model.name
    assert one.model.uri != other.model.uri
    assert one.config.name == other.config.name
    assert deployment(environment={"A": "b"}).model.name != one.model.name


def test_a_folder_is_uploaded_file_by_file_below_a_digest() -> None:
    it = deployment()
    prefix = it.model.uri.removeprefix(f"s3://{it.bucket}/")
    assert [order.key for order in it.objects] == [
        f"{prefix}config.json", f"{prefix}model.safetensors",
    ]  # fmt: skip
    assert not it.model.is_archive
    assert it.model.environment["OPTION_ENABLE_LORA"] == "true"


@cases(
    "found, uri, is_archive",
    case("a prefix is served where it is",
        folder("model.joblib", place=Origin.PREFIX, uri="s3://b/p/"), "s3://b/p/", False),
    case("so is an archive in S3",
        folder("model.joblib", place=Origin.OBJECT, uri="s3://b/m.tar.gz"), "s3://b/m.tar.gz",
        True),
)  # fmt: skip
def test_a_source_in_s3_is_not_uploaded(found: Found, uri: str, is_archive: bool) -> None:
    it = deployment(SKLEARN, found)
    assert (it.objects, it.model.uri, it.model.is_archive) == ((), uri, is_archive)


def test_objects_in_s3_that_change_make_another_model() -> None:
    first, second = (
        Found(
            given="s3://b/p/",
            place=Origin.PREFIX,
            uri="s3://b/p/",
            files=(FoundFile(name="m.joblib", size_bytes=1, etag=etag),),
        )
        for etag in ("1", "2")
    )
    assert deployment(SKLEARN, first).model.name != deployment(SKLEARN, second).model.name


def test_a_local_archive_is_one_object() -> None:
    own = FoundFile(name="m.tar.gz", size_bytes=5, path="/m.tar.gz")
    it = deployment(SKLEARN, folder("model.joblib", place=Origin.ARCHIVE, archive=own))
    assert [order.files for order in it.objects] == [(own,)]
    assert it.model.is_archive
    assert it.model.uri.endswith("/ffffffffffffffff/model.tar.gz")


def test_an_image_has_no_data_and_a_hub_model_is_named_with_its_commit() -> None:
    image = deployment(IMAGE, Found(given="localhost/lengths:1", place=Origin.IMAGE))
    assert (image.model.image, image.model.uri) == ("localhost/lengths:1", "")
    hub = deployment(LLM, Found(given="org/name", place=Origin.HUB, revision="abc"))
    assert hub.model.environment["OPTION_MODEL_ID"] == "org/name"
    assert hub.model.environment["OPTION_REVISION"] == "abc"


def test_code_at_the_top_is_named_and_variables_of_the_command_come_last() -> None:
    it = deployment(CODE, folder("inference.py"), environment={"SAGEMAKER_PROGRAM": "other.py"})
    assert it.model.environment == {
        "SAGEMAKER_PROGRAM": "other.py", "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model",
    }  # fmt: skip


@cases(
    "given, scaling, copies",
    case("nothing given leaves the number as it is", {}, None, None),
    case("a number", {"copies": 2}, None, 2),
    case("scale to zero", {"min_copies": 0}, (0, 1), None),
    case("from one to the most", {"max_copies": 3}, (1, 3), None),
    case("no fewer", {"min_copies": 2}, (2, 2), None),
    case("between bounds the policy decides", {"min_copies": 1, "max_copies": 4, "copies": 2},
        (1, 4), None),
)  # fmt: skip
def test_copies_and_bounds(
    given: Mapping[str, Any], scaling: tuple[int, int] | None, copies: int | None
) -> None:
    it = deployment(**given)
    expected = scaling and ScalingOrder(min_copies=scaling[0], max_copies=scaling[1])
    assert (it.scaling, it.copies) == (expected, copies)
    assert it.config.min_instances == (0 if scaling and scaling[0] == 0 else 1)


@cases(
    "given, error",
    case("no copies", {"copies": 0}, "--copies is 0; it must be 1 to"),
    case("min > max", {"min_copies": 3, "max_copies": 2}, "--min is 3 and --max 2"),
    case("a negative number", {"min_copies": -1}, "--min is -1"),
    case("outside", {"copies": 5, "max_copies": 2}, "--copies is 5, outside of"),
    case("a name", {"name": "a_b"}, r"not a valid name: .* for example a-b"),
    case("a name of 64 letters", {"name": "a" * 64}, "not a valid name: up to 63"),
    case("an instance type too small", {"instance_type": "ml.t2.medium"},
        "there is not enough room: a copy needs 4 " "CPUs and 1152 MB, and ml.t2.medium has"),
)  # fmt: skip
def test_options_that_do_not_go_together(given: Mapping[str, Any], error: str) -> None:
    with pytest.raises(TerminalError, match=error):
        deployment(**given)


@cases(
    "name, error",
    case("a near miss", "ml.m5.lrge", "did you mean ml.m5.large"),
    case("nothing like it", "zzz", "for example ml.m5.large"),
)
def test_an_unknown_instance_type(name: str, error: str) -> None:
    with pytest.raises(TerminalError, match=error):
        check_instance_type(name)


def test_a_repository_of_several_models_asks_which_answers() -> None:
    several = folder("a/config.pbtxt", "a/1/model.py", "b/config.pbtxt")
    with pytest.raises(TerminalError, match=r"models a, b: .*TRITON_DEFAULT_MODEL_NAME=a"):
        deployment(TRITON, several)
    named = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "b"}
    assert deployment(TRITON, several, environment=named).model.environment == named


def test_adapters_are_packed_each_under_its_own_digest() -> None:
    found = folder("es/adapter_config.json", "es/adapter_model.safetensors",
                   "fr/adapter_config.json")  # fmt: skip
    it = deployment(adapters=adapters_in(found))
    assert [order.component for order in it.adapters] == ["chat-es", "chat-fr"]
    assert [order.key.rpartition("/")[2] for order in it.objects if order.packed] == [
        "es.tar.gz", "fr.tar.gz",
    ]  # fmt: skip
    assert it.model == deployment().model  # so that another adapter updates nothing else


@cases(
    "found, names",
    case("one folder", folder("adapter_config.json"), ["m"]),
    case("folders below", folder("adapters/es/adapter_config.json"), ["es"]),
    case("archives below a prefix",
        folder("es.tar.gz", "x.txt", place=Origin.PREFIX, uri="s3://b/a/"), ["es"]),
    case("one archive", Found(given="s3://b/es.tgz", place=Origin.OBJECT, uri="s3://b/es.tgz"),
        ["es"]),
)  # fmt: skip
def test_adapters_of_a_source(found: Found, names: list[str]) -> None:
    assert [it.name for it in adapters_in(found)] == names


@cases(
    "found, error",
    case("no adapter", folder("readme.txt"), "has readme.txt; looked for adapter_config.json"),
    case("two of one name", folder("a/es/adapter_config.json", "b/es/adapter_config.json"),
        "two adapters of one name"),
    case("a folder in S3", folder("es/adapter_config.json", place=Origin.PREFIX, uri="s3://b/"),
        "has no .tar.gz"),
)  # fmt: skip
def test_adapters_that_are_none(found: Found, error: str) -> None:
    with pytest.raises(TerminalError, match=error):
        adapters_in(found)


def test_adapters_of_a_model_that_has_none() -> None:
    found = adapters_in(folder("adapter_config.json"))
    with pytest.raises(TerminalError, match="--adapters is for language models; this is a file"):
        deployment(SKLEARN, folder("m.joblib"), adapters=found)


def endpoint(*free_cpus: float) -> dict[str, Any]:
    instances = [
        {
            "id": f"i-{number}", "state": "running",
            "free": {"cpus": it, "memory_bytes": 8 * GIB, "accelerators": 0, "device_ids": []},
        }
        for number, it in enumerate(free_cpus)
    ]  # fmt: skip
    return {"instances": instances}


@cases(
    "shown, copies, text",
    case("no endpoint yet", None, 1,
        "yes: 1 x ml.m5.2xlarge (8 CPUs and 32768 MB) will be started for it"),
    case("room on what runs", endpoint(4.0), 1,
        "yes, on what runs: i-0 has 4 CPUs and 8192 MB free"),
    case("room on another instance", endpoint(3.0), 1, "on another ml.m5.2xlarge"),
    case("none, and none allowed", endpoint(3.0, 1.0), 1, "not now, until copies"),
)  # fmt: skip
def test_where_copies_fit(shown: dict[str, Any] | None, copies: int, text: str) -> None:
    assert instances_text(deployment(), shown, copies).startswith(text)


def test_a_machine_with_less_memory_than_is_wanted() -> None:
    assert "4 CPUs" in machine_text(deployment(), 1, LAPTOP)
    assert "less than the 9.0 GiB wanted" in machine_text(deployment(), 8, LAPTOP)


def test_a_disk_that_is_too_small_for_two_copies_of_the_files() -> None:
    it = deployment()
    small = Machine(cpus=1, accelerators=0, memory_bytes=1, free_bytes=1, free_disk_bytes=399)
    assert "0.0 GB free" in str(disk_need(it, (), small))
    assert disk_need(it, [it.objects[0].key], small) is None


def test_copies_within_what_is_free() -> None:
    asked = Requirements(min_memory_bytes=2, cpus=1.0, accelerators=1.0)
    assert copies_within(asked, Shape(cpus=4, memory_bytes=7, accelerators=5)) == 3
    assert copies_within(asked, Shape(cpus=4, memory_bytes=7, accelerators=0)) == 0


def test_the_usual_time_is_the_median_of_those_like_it() -> None:
    past = [PastDeployment(served="llm", num_bytes=100, seconds=it) for it in (9.0, 5.0, 7.0)]
    past += [PastDeployment(served="llm", num_bytes=1000, seconds=99.0)]
    past += [PastDeployment(served="sklearn:1.2", num_bytes=100, seconds=1.0)]
    assert usual_s(past, "llm", 150) == 7.0
    assert usual_s(past, "llm", 10**9) is None
