"""Plans of `hostelry prune`: which uploads and models go, which stay, and why."""

import random

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.prune import (
    AddressUses,
    DeployedModel,
    PrunePlan,
    StoredUpload,
    UploadObject,
    check_store,
    group_uploads,
    plan_prune,
    show,
    upload_prefix,
)
from hostelry.home.home import UpConfig

NOW, DAY_S = 1_800_000_000.0, 86_400.0
BUCKET = "sagemaker-us-east-1-111122223333"
PREFIX = "deploy/0123456789abcdef/"
URI = f"s3://{BUCKET}/{PREFIX}"
OWN = UpConfig(control_port=1)
SHARED = UpConfig(control_port=1, s3_endpoint="http://store:9000")


def upload(prefix: str = PREFIX, age_s: float = 2 * DAY_S, upload_id: str = "") -> StoredUpload:
    one = UploadObject(
        key=f"{prefix}model.tar.gz", num_bytes=100, modified_at=NOW - age_s, upload_id=upload_id
    )
    return StoredUpload(bucket=BUCKET, prefix=prefix, objects=(one,))


def model(name: str, age_days: float, *users: str) -> DeployedModel:
    return DeployedModel(model=name, name="chat", created_at=NOW - age_days * DAY_S, users=users)


def removed(plan: PrunePlan) -> list[str]:
    return [why for _, why in plan.uploads]


@cases(
    "uses, reason",
    case("no record names anything", {}, None),
    case("a model names it", {URI: ["model m"]}, "model m names it"),
    case("a model names an object of it", {f"{URI}model.tar.gz": ["model m"]}, "model m names it"),
    case("it is named without its slash", {URI.rstrip("/"): ["endpoint e"]}, "endpoint e names it"),
    case("a folder of models has it", {f"s3://{BUCKET}/deploy/": ["model all"]},
        "model all names it"),
    case("a prefix of its name is a model's data", {f"s3://{BUCKET}/deploy/01": ["model all"]},
        "model all names it"),
    case("the whole bucket is a model's data", {f"s3://{BUCKET}": ["model all"]},
        "model all names it"),
    case("another upload is named", {f"s3://{BUCKET}/deploy/ffffffffffffffff/": ["model m"]}, None),
    case("another bucket is named", {f"s3://other/{PREFIX}": ["model m"]}, None),
    case("several records name it", {URI: ["component c", "model m"]}, "component c names it"),
)  # fmt: skip
def test_an_upload_goes_if_no_record_names_it(
    uses: dict[str, list[str]], reason: str | None
) -> None:
    plan = plan_prune([upload()], [], uses, NOW, DAY_S)
    assert removed(plan) == ([] if reason else ["no record names it"])
    assert [why for _, why in plan.kept] == ([reason] if reason else [])
    assert plan.num_bytes == (0 if reason else 100)


@cases(
    "age_s, stays",
    case("it was put now", 0.0, True),
    case("it was put less than a day ago", DAY_S - 1, True),
    case("it was put a day ago", DAY_S, False),
    case("it was put by a clock that is ahead", -3600.0, True),
)
def test_what_was_put_a_short_time_ago_stays_though_no_record_names_it(
    age_s: float, stays: bool
) -> None:
    plan = plan_prune([upload(age_s=age_s)], [], {}, NOW, DAY_S)
    assert [why for _, why in plan.kept] == (["it was put a short time ago"] if stays else [])
    assert len(plan.uploads) == (not stays)


def test_one_new_object_keeps_an_old_upload() -> None:
    old, new = upload(), upload(age_s=60.0)
    both = StoredUpload(bucket=BUCKET, prefix=PREFIX, objects=(*old.objects, *new.objects))
    assert plan_prune([both], [], {}, NOW, DAY_S).uploads == ()


def test_parts_that_broke_off_go_while_the_objects_beside_them_stay() -> None:
    used, parts = upload(), upload(upload_id="u")
    both = StoredUpload(bucket=BUCKET, prefix=PREFIX, objects=(*used.objects, *parts.objects))
    plan = plan_prune([both], [], {URI: ["model m"]}, NOW, DAY_S)
    ((gone, why),) = plan.uploads
    assert (gone.objects, why) == (parts.objects, "parts of an upload that broke off")


def test_of_former_models_the_two_newest_stay_and_the_uploads_of_others_go_with_them() -> None:
    models = [
        model("chat-5", 1, "component chat"),
        model("chat-4", 2),
        model("chat-3", 3),
        model("chat-2", 4),
        model("chat-1", 5, "transform_job t"),
        model("chat-0", 6),
    ]
    uploads = [upload(f"deploy/{n:016x}/", 9 * DAY_S) for n in range(6)]
    uses = {it.uri: [f"model chat-{n}"] for n, it in enumerate(uploads)}
    plan = plan_prune(uploads, models, uses, NOW, DAY_S)
    assert [it.model for it, _ in plan.models] == ["chat-2", "chat-0"]
    assert plan.models[0][1] == "a former model of chat; 2 newer ones stay"
    assert removed(plan) == ["only model chat-0 names it", "only model chat-2 names it"]


def test_a_former_model_of_the_last_hours_stays() -> None:
    models = [model(f"chat-{n}", n / 100) for n in range(5)]
    assert plan_prune([], models, {}, NOW, DAY_S).models == ()


@pytest.mark.parametrize(
    ("key", "applied", "prefix"),
    [
        ("deploy/0123456789abcdef/model.tar.gz", False, "deploy/0123456789abcdef/"),
        ("deploy/0123456789abcdef/a/b", False, "deploy/0123456789abcdef/"),
        (f"adapters/chat/{'ab' * 16}.tar.gz", False, f"adapters/chat/{'ab' * 16}.tar.gz"),
        (f"{'ab' * 16}/model/x", True, f"{'ab' * 16}/"),
        ("deploy/mine/model.tar.gz", False, None),
        ("deploy/0123456789ABCDEF/model.tar.gz", False, None),
        ("deploy/0123456789abcdef", False, None),
        ("adapters/chat/mine.tar.gz", False, None),
        (f"adapters/{'ab' * 16}.tar.gz", False, None),
        (f"{'ab' * 16}/model/x", False, None),
        (f"deploy/{'ab' * 16}/model.tar.gz", False, None),
        (f"adapters/chat/{'ab' * 8}.tar.gz", False, None),
        (f"adapters/chat/{'ab' * 16}", False, None),
        (f"{'ab' * 8}/model/x", True, None),
        ("mine/x", True, None),
        ("ab" * 16, True, None),
        ("", False, None),
    ],
)
def test_only_what_commands_upload_under_a_digest_is_looked_at(
    key: str, applied: bool, prefix: str | None
) -> None:
    assert upload_prefix(key, applied=applied) == prefix
    objects = [UploadObject(key=key, num_bytes=1, modified_at=0.0)]
    found = group_uploads(BUCKET, objects, applied=applied)
    assert [it.prefix for it in found] == ([prefix] if prefix else [])


def test_the_index_finds_what_a_look_at_each_address_does() -> None:
    random.seed(20261129)
    letters = "ab/"
    for _ in range(300):
        made = ["s3://" + "".join(random.choices(letters, k=random.randint(1, 5))) for _ in "1234"]
        asked = "s3://" + "".join(random.choices(letters, k=5))
        whole = asked.rstrip("/")
        expected = any(it.startswith(whole) or asked.startswith(it) for it in made)
        assert (AddressUses({it: ["r"] for it in made}).user_of(asked) is not None) == expected


@cases(
    "num_removed, num_kept, first, last",
    case("one", 1, 1, "Would remove 0 former models and 1 upload, 100 B (", "1 upload stays, "),
    case("two", 2, 2, "Would remove 0 former models and 2 uploads, 200 B (", "2 uploads stay, "),
)
def test_numbers_of_uploads_are_shown_with_their_noun(
    num_removed: int, num_kept: int, first: str, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = (upload(), "no record names it")
    show(
        PrunePlan(uploads=(one,) * num_removed, kept=(one,) * num_kept),
        as_json=False,
        removed=False,
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(first)
    assert lines[-1].startswith(last)


def test_objects_of_an_endpoint_are_removed_only_if_no_other_platform_uses_it() -> None:
    check_store(OWN, sole_platform=False)
    check_store(SHARED, sole_platform=True)
    with pytest.raises(TerminalError, match="http://store:9000"):
        check_store(SHARED, sole_platform=False)
