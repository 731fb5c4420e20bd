"""An ECR repository: a name for images, which Podman or Docker on this machine holds."""

from dataclasses import dataclass

from hostelry.domain.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """One repository; `mutability` and `scan_on_push` are echoed only."""

    scope: Scope
    name: str
    created_at: float
    mutability: str = "MUTABLE"
    scan_on_push: bool = False

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:ecr:{self.scope.region}:{self.scope.account}:repository/{self.name}"

    @property
    def uri(self) -> str:
        """The name, without a tag, of its images in models and in `docker build --tag`."""
        return f"{self.scope.account}.dkr.ecr.{self.scope.region}.amazonaws.com/{self.name}"
