"""Terraform's AWS provider, unmodified: apply, empty plan, change, import, destroy.

Also of endpoints with several variants, a shadow and capture, whose updates move in steps.

The provider is 700 MB and comes from no package registry, so this runs where Terraform and a
mirror of the provider are installed, and says so elsewhere.
"""

import copy
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform
from tests.selection import runs_all

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

MIRRORS = ("~/.terraform.d/plugins", "/usr/local/share/terraform/plugins", "/opt/tf-plugins")
PROVIDER = "registry.terraform.io/hashicorp/aws"
CONFIGURATION = Path(__file__).parent / "terraform"
NO_CHANGES = 0
# The shares of the traffic that the new fleet has after each step.
POLICIES = {
    "LINEAR": [0.5, 1.0],
    "CANARY": [0.5, 1.0],
    "ROLLING": [0.5, 1.0],
    "ALL_AT_ONCE": [1.0],
}
CHANGED = ("-var", "weight=2", "-var", "threshold=7", "-var", "maximum=3")
IMPORTED = {
    "aws_sagemaker_model.echo": "tf-echo",
    "aws_sagemaker_endpoint.echo": "tf-echo",
    "aws_cloudwatch_metric_alarm.errors": "tf-errors",
}


def mirror() -> Path | None:
    """The mirror of providers of this machine, if it has one and Terraform."""
    places = (Path(place).expanduser() for place in MIRRORS)
    found = next((place for place in places if (place / PROVIDER).is_dir()), None)
    return found if shutil.which("terraform") else None


class Terraform:
    """Terraform in a separate folder, under `hostelry exec`."""

    def __init__(self, platform: Platform, folder: Path, plugins: Path) -> None:
        self.platform = platform
        self._folder = folder
        settings = folder / "terraform.rc"
        self._environment = {"TF_CLI_CONFIG_FILE": str(settings), "TF_CLI_ARGS": "-no-color"}
        shutil.copytree(CONFIGURATION, folder)
        settings.write_text(
            f'provider_installation {{\n  filesystem_mirror {{ path = "{plugins}" }}\n}}\n'
            "disable_checkpoint = true\n"
        )

    def of(self, name: str) -> "Terraform":
        """Terraform in the folder `name` of the configuration."""
        found = copy.copy(self)
        found._folder = self._folder / name
        found.run("init")
        return found

    def run(self, *command: str, code: int = 0) -> str:
        """The output of `terraform COMMAND`. Fails the test if its exit code is not `code`."""
        terraform = ["terraform", f"-chdir={self._folder}", *command]
        return self.platform.exec(terraform, self._environment, code).stdout

    def imported(self, names: Mapping[str, str], *arguments: str) -> str:
        """The output of `terraform apply` that imports these resources by address."""
        blocks = (f'import {{\n  to = {it}\n  id = "{name}"\n}}\n' for it, name in names.items())
        (self._folder / "imported.tf").write_text("".join(blocks))
        return self.run("apply", "-auto-approve", *arguments)

    def expect_no_changes(self, *arguments: str) -> None:
        """Run `terraform plan`. Fails the test if it would change anything."""
        self.run("plan", "-detailed-exitcode", *arguments, code=NO_CHANGES)

    def destroyed(self, *arguments: str) -> None:
        """Run `terraform destroy`. Fails the test if anything is left."""
        self.run("destroy", "-auto-approve", *arguments)
        assert json.loads((self._folder / "terraform.tfstate").read_text())["resources"] == []


@pytest.fixture(scope="module")
def terraform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terraform]:
    plugins = mirror()
    if plugins is None:
        pytest.skip("Terraform, or a mirror of its AWS provider, is not installed here")
    root = Path(tmp_path_factory.mktemp("terraform"))
    home = root / "home"
    home.mkdir()
    (home / "images.toml").write_text(ECHO_IMAGE)
    with Platform(home, "--pace", "60") as platform:
        yield Terraform(platform, root / "terraform", plugins)


def test_everything_around_an_endpoint_from_apply_to_destroy(
    terraform: Terraform, pytestconfig: pytest.Config
) -> None:
    around = terraform.of("around")
    around.run("apply", "-auto-approve")
    around.expect_no_changes()
    if runs_all(pytestconfig):
        applied = around.run("apply", "-auto-approve", *CHANGED)
        assert "1 added, 3 changed, 1 destroyed" in applied
        around.run("state", "rm", *IMPORTED)
        imported = around.imported(IMPORTED, *CHANGED)
        assert "3 imported, 0 added, 0 changed, 0 destroyed" in imported
    around.destroyed(*CHANGED)


def updates(platform: Platform, endpoint: str) -> list[dict[str, Any]]:
    """The endpoint's updates, as `hostelry scaling timeline` has them."""
    found: list[dict[str, Any]] = json.loads(platform.scaling("timeline", endpoint, "--json"))[
        "updates"
    ]
    return found


@pytest.mark.slow
@pytest.mark.thorough
def test_updates_that_move_the_traffic_in_steps(terraform: Terraform) -> None:
    guarded = terraform.of("guarded")
    guarded.run("apply", "-auto-approve")
    looker = terraform.platform.looker()
    described = looker.describe_endpoint(EndpointName="guarded")
    weights = {it["VariantName"]: it["CurrentWeight"] for it in described["ProductionVariants"]}
    assert weights == {"main": 3.0, "second": 1.0}
    assert described["DataCaptureConfig"]["CaptureStatus"] == "Started"
    shadowed = looker.describe_endpoint(EndpointName="shadowed")
    assert [it["VariantName"] for it in shadowed["ShadowProductionVariants"]] == ["next"]
    changed: tuple[str, ...] = ()
    for version, (policy, shares) in enumerate(POLICIES.items(), 2):
        changed = ("-var", f"version_served=v{version}", "-var", f"policy={policy}")
        guarded.run("apply", "-auto-approve", *changed)
        update = updates(terraform.platform, "guarded")[-1]
        assert update["outcome"] == "complete", update
        assert [it["most_share"] for it in update["steps"]] == [0.0, *shares], update
        if policy != "ALL_AT_ONCE":  # that one is imported below
            guarded.expect_no_changes(*changed)
    guarded.run("state", "rm", "aws_sagemaker_endpoint.guarded")
    guarded.run("import", *changed, "aws_sagemaker_endpoint.guarded", "guarded")
    guarded.expect_no_changes(*changed)
    guarded.destroyed(*changed)
