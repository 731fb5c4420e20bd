"""Takes screenshots of the console's views, with real endpoints under load: `make screenshots`.

    python -m tests.screenshots [FOLDER]

Writes NAME-light.png, NAME-dark.png and NAME-phone.png for each view, including an endpoint under
update and an LLM, to docs/console by default. It takes some minutes.
"""

import io
import json
import os
import re
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from PIL import Image
from playwright.sync_api import Page
from tests.integration.batch_rig import packed
from tests.integration.console_rig import chromium, signed_in
from tests.integration.console_scene import (
    AUDIT,
    CHECKOUT,
    RECOMMEND,
    SHOP,
    Load,
    Scene,
    platform_of,
)
from tests.integration.drill import NO_RETRIES, copies_of
from tests.integration.platform import Platform, until

from hostelry.cli.demo import demo_model_folder

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "console"
VIEWS = ROOT / "src" / "hostelry" / "console" / "static" / "views"
STYLES = ("es", "fr", "pirate")
ASSISTANT, CHAT = "assistant", "chat"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi20.0.0-cu128"
BUCKET = "screenshots"
COLOURS = 128
SHAPES: Mapping[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 375, "height": 760}, "color_scheme": "light"},
}
MAX_HEIGHT = 1500
SETTLED_MS = 3000
BAKING_S = 12.0  # after this time an update is in its first step
MOST_BYTES = 200_000
SLOWEST_S = 1.8
GOOD_VERSIONS = ("v3", "v4", "v5")  # one is rolled out for the pictures of each shape
COMMON_COLOURS = 64  # colours that stay exact


class AssistantLoad:
    """A client that streams requests to an LLM and its adapters in turn."""

    def __init__(self, platform: Platform, names: list[str]) -> None:
        self._runtime = platform.boto3("sagemaker-runtime", retries=NO_RETRIES)
        self._names = names
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._call, daemon=True)

    def __enter__(self) -> "AssistantLoad":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _call(self) -> None:
        turn = 0
        while not self._over.is_set():
            turn += 1
            messages = [{"role": "user", "content": f"Give me tip {turn} for good tea."}]
            body = {"messages": messages, "max_tokens": 24, "stream": True}
            try:
                answer = self._runtime.invoke_endpoint_with_response_stream(
                    EndpointName=CHAT,
                    InferenceComponentName=self._names[turn % len(self._names)],
                    ContentType="application/json",
                    Body=json.dumps(body),
                )
                for _ in answer["Body"]:
                    pass
            except (BotoCoreError, ClientError) as error:
                print(f"a call of the assistant failed: {error}", flush=True)
            self._over.wait(0.3)


def deploy_assistant(scene: Scene) -> list[str]:
    """Deploy SmolLM2 with three adapters on the endpoint `chat`. Returns the callable names."""
    platform, model = scene.platform, demo_model_folder()
    s3 = platform.boto3("s3")
    s3.create_bucket(Bucket=BUCKET)
    for path in sorted(model.iterdir()):
        s3.put_object(Bucket=BUCKET, Key=f"model/{path.name}", Body=path.read_bytes())
    for style in STYLES:
        archive = packed(ROOT / "examples" / "adapters" / style)
        s3.put_object(Bucket=BUCKET, Key=f"{style}.tar.gz", Body=archive)
    scene.config(CHAT, {"InstanceType": "ml.g5.2xlarge", "InitialInstanceCount": 1})
    scene.sagemaker.create_endpoint(EndpointName=CHAT, EndpointConfigName=CHAT)
    scene.in_service(CHAT)
    environment = {
        "HF_MODEL_ID": f"s3://{BUCKET}/model/",
        "OPTION_ENABLE_LORA": "true",
        "OPTION_MAX_LORA_RANK": "64",
    }
    scene.sagemaker.create_inference_component(
        InferenceComponentName=ASSISTANT,
        EndpointName=CHAT,
        VariantName="AllTraffic",
        Specification={
            "Container": {"Image": IMAGE, "Environment": environment},
            "ComputeResourceRequirements": {
                "NumberOfAcceleratorDevicesRequired": 1,
                "MinMemoryRequiredInMb": 4096,
            },
            "StartupParameters": {"ContainerStartupHealthCheckTimeoutInSeconds": 600},
        },
        RuntimeConfig={"CopyCount": 1},
    )
    scene.component_in_service(ASSISTANT, within_s=300)
    names = [f"{ASSISTANT}-{style}" for style in STYLES]
    for name, style in zip(names, STYLES, strict=True):
        specification = {
            "BaseInferenceComponentName": ASSISTANT,
            "Container": {"ArtifactUrl": f"s3://{BUCKET}/{style}.tar.gz"},
        }
        scene.sagemaker.create_inference_component(
            InferenceComponentName=name, EndpointName=CHAT, Specification=specification
        )
    for name in names:
        scene.component_in_service(name, within_s=120)
    return [ASSISTANT, *names]


@contextmanager
def eventful(scene: Scene) -> Iterator[str]:
    """Make events under load: `shop` scales out, an update is rolled back, a copy is killed.

    Yields the id of a slow call.
    """
    names = deploy_assistant(scene)
    scene.deploy_broken()
    for version in ("v2", *GOOD_VERSIONS):
        scene.version(version)
    with Load(scene), AssistantLoad(scene.platform, names):
        scene.follow_load()
        wait(30)
        scene.roll_out("v2", wait_s=3600)
        with Load(scene, shop=8, checkout=0):
            until(lambda: len(copies_of(scene.platform, RECOMMEND)) == 3, "it scales out", 90)
            wait(10)
        os.kill(min(copies_of(scene.platform, RECOMMEND).values()), signal.SIGKILL)
        yield slow_call(scene.platform)


def slow_call(platform: Platform) -> str:
    """Make a slow call of `recommend`, and return its id."""
    runtime = platform.boto3("sagemaker-runtime")
    body = json.dumps({"wait_s": SLOWEST_S})
    answer = runtime.invoke_endpoint(EndpointName=SHOP, InferenceComponentName=RECOMMEND, Body=body)
    answer["Body"].read()
    return str(answer["ResponseMetadata"]["RequestId"])


def wait(seconds: float) -> None:
    """Wait while the platform runs."""
    threading.Event().wait(seconds)


def paths(slow: str) -> dict[str, str]:
    """The addresses of the views to picture."""
    found = {}
    for path in sorted(VIEWS.glob("*.js")):
        source = path.read_text()
        name, home = (re.search(rf'^  {key}: "([^"]+)"', source, re.M) for key in ("name", "home"))
        if "export const view = " in source and name is not None and home is not None:
            found[name[1]] = home[1]
    others = {
        "endpoint": f"endpoint/{SHOP}/component/{RECOMMEND}",
        "llm": f"endpoint/{CHAT}/component/{ASSISTANT}",
        "call": f"call/{slow}",
    }
    return {"rollout": f"endpoint/{CHECKOUT}", **found, **others}


def picture(page: Page) -> bytes:
    """The page as a PNG with few colours."""
    height = page.evaluate("document.documentElement.scrollHeight")
    size = page.viewport_size or {"width": 1280, "height": 800}
    clip = {"x": 0, "y": 0, "width": size["width"], "height": min(MAX_HEIGHT, height)}
    taken = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip)))  # type: ignore[arg-type]
    return with_few_colours(taken.convert("RGB"))


def with_few_colours(taken: Image.Image) -> bytes:
    """The picture as a PNG. The most common colours are exact, the others approximate."""
    content = taken.tobytes()
    counted = Counter(zip(content[0::3], content[1::3], content[2::3], strict=True))
    common = [colour for colour, _ in counted.most_common(COMMON_COLOURS)]
    others = taken.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*(part for colour in common for part in colour), *others[: 3 * COLOURS]])
    written = io.BytesIO()
    few = taken.quantize(palette=palette, dither=Image.Dither.NONE)
    few.save(written, "PNG", optimize=True)
    return written.getvalue()


def take(scene: Scene, slow: str, folder: Path) -> None:
    """Write a picture of each view in each shape."""
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for version, (shape, options) in zip(GOOD_VERSIONS, SHAPES.items(), strict=True):
            scene.in_service(CHECKOUT, within_s=120)
            scene.roll_out(version, wait_s=3600)
            with signed_in(browser, scene.platform, **options) as console:
                wait(BAKING_S)
                for name, path in paths(slow).items():
                    console.open(path)
                    console.page.locator("main h1").first.wait_for()
                    console.page.wait_for_timeout(SETTLED_MS)
                    content = picture(console.page)
                    assert len(content) < MOST_BYTES, f"{name}-{shape}.png: {len(content)} bytes"
                    (folder / f"{name}-{shape}.png").write_bytes(content)
                    print(f"{name}-{shape}.png {len(content) / 1000:.0f} kB", flush=True)


def main(arguments: list[str]) -> None:
    """Start the platform, make events, and take the pictures."""
    folder = Path(arguments[0]) if arguments else FOLDER
    with (
        tempfile.TemporaryDirectory(prefix="hostelry-screenshots-") as scratch,
        platform_of(Path(scratch) / "home") as platform,
    ):
        scene = Scene(platform)
        scene.deploy()
        for name in (RECOMMEND, AUDIT):
            scene.component_in_service(name)
        with eventful(scene) as slow:
            take(scene, slow, folder)


if __name__ == "__main__":
    main(sys.argv[1:])
