"""Terraform's AWS provider, unmodified: apply, empty plan, change, import, destroy.

The provider is 700 MB and comes from no package registry, so this runs where Terraform and a
mirror of the provider are installed, and says so elsewhere.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform

pytestmark = pytest.mark.integration

MIRRORS = ("~/.terraform.d/plugins", "/usr/local/share/terraform/plugins", "/opt/tf-plugins")
PROVIDER = "registry.terraform.io/hashicorp/aws"
CONFIGURATION = Path(__file__).parent / "terraform"
NO_CHANGES = 0
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
    """Terraform in a folder of its own, under `hostelry exec`."""

    def __init__(self, platform: Platform, folder: Path, plugins: Path) -> None:
        self._platform = platform
        self._folder = folder
        settings = folder / "terraform.rc"
        self._environment = {"TF_CLI_CONFIG_FILE": str(settings), "TF_CLI_ARGS": "-no-color"}
        shutil.copytree(CONFIGURATION, folder, dirs_exist_ok=True)
        settings.write_text(
            f'provider_installation {{\n  filesystem_mirror {{ path = "{plugins}" }}\n}}\n'
            "disable_checkpoint = true\n"
        )

    def run(self, *command: str, code: int = 0) -> str:
        """What `terraform COMMAND` prints; fails the test where its exit code is not `code`."""
        terraform = ["terraform", f"-chdir={self._folder}", *command]
        return self._platform.exec(terraform, self._environment, code).stdout

    def expect_no_changes(self, *arguments: str) -> None:
        """`terraform plan`; fails the test where it would change anything."""
        self.run("plan", "-detailed-exitcode", *arguments, code=NO_CHANGES)


@pytest.fixture
def terraform(tmp_path: Path) -> Iterator[Terraform]:
    plugins = mirror()
    if plugins is None:
        pytest.skip("Terraform, or a mirror of its AWS provider, is not installed here")
    home = tmp_path / "home"
    home.mkdir()
    (home / "images.toml").write_text(ECHO_IMAGE)
    folder = tmp_path / "terraform"
    with Platform(home, "--pace", "20") as platform:
        terraform = Terraform(platform, folder, plugins)
        terraform.run("init")
        yield terraform


def test_everything_around_an_endpoint_from_apply_to_destroy(terraform: Terraform) -> None:
    terraform.run("apply", "-auto-approve")
    terraform.expect_no_changes()
    applied = terraform.run("apply", "-auto-approve", *CHANGED)
    assert "1 added, 3 changed, 1 destroyed" in applied
    terraform.run("state", "rm", *IMPORTED)
    for address, name in IMPORTED.items():
        terraform.run("import", *CHANGED, address, name)
    terraform.expect_no_changes(*CHANGED)
    terraform.run("destroy", "-auto-approve", *CHANGED)
    assert terraform.run("show").strip() == "The state file is empty. No resources are represented."
