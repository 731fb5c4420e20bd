"""Redirection of STS calls to the gateway, which Python loads at start under `hostelry exec`.

The SageMaker SDK makes its STS client with an explicit endpoint, https://sts.REGION.amazonaws.com,
which AWS_ENDPOINT_URL does not change. Such clients get the hostelry's address instead. The module
acts when botocore is imported, imports nothing before, runs on Python 3.8 or newer, and loads a
sitecustomize of the user's own afterwards.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import sys

TYPE_CHECKING = False  # what type checkers take for true; importing typing would slow every start
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
STS_HOST = re.compile(
    r"https?://sts(-fips)?(\.[a-z0-9-]+)?\.(amazonaws\.com(\.cn)?|api\.aws)(:\d+)?/?$"
)
WATCHED = "botocore.session"


def to_gateway(url: Any) -> Any:
    """The gateway's URL where `url` is one of AWS's STS hosts, else `url`."""
    gateway = os.environ.get("AWS_ENDPOINT_URL")
    if gateway and isinstance(url, str) and STS_HOST.match(url.lower()):
        return gateway
    return url


def redirect(session_class: Any) -> None:
    """Make every client of a botocore session call the gateway for STS."""
    create_client = session_class.create_client

    def create_redirected(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("endpoint_url"):
            kwargs["endpoint_url"] = to_gateway(kwargs["endpoint_url"])
        elif len(args) > 5:  # service, region, api version, use_ssl, verify, endpoint_url
            args = (*args[:5], to_gateway(args[5]), *args[6:])
        return create_client(self, *args, **kwargs)

    session_class.create_client = create_redirected


class WatchingLoader:
    """Loader of botocore.session that redirects it once its own loader has run it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's own loader does."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: Any) -> None:
        """As the module's own loader does; then the redirection."""
        self._loader.exec_module(module)
        redirect(module.Session)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class WatchingFinder:
    """Finder of botocore.session that wraps the loader of the other finders."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for the watched module only."""
        if name != WATCHED:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is cls or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = WatchingLoader(spec.loader)  # type: ignore[assignment] # a loader by duck
                return spec
        return None


def load_users_own() -> None:
    """Run the sitecustomize that Python would have loaded without this one."""
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


sys.meta_path.insert(0, WatchingFinder)
load_users_own()
