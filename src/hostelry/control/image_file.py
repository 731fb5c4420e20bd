"""The operator's images.toml, read again after each change."""

import logging
from pathlib import Path

from hostelry.base.errors import TerminalError
from hostelry.base.files import Stamp, get_stamp
from hostelry.fleet.rules.images import ImageRules

LOG = logging.getLogger(__name__)


class ImageFile:
    """The rules in one images.toml. The first use after a change reads the file again.

    An error in the file is logged once per change. Until the file is valid, the last valid rules
    apply, or the built-in rules.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rules = ImageRules()
        self._seen: Stamp | None = None

    def is_llm(self, image: str) -> bool:
        """Whether copies of `image` are built-in LLM servers, which OpenAI clients can call."""
        rule = self.rules().resolve(image)
        return rule is not None and rule.kind == "lmi"

    def rules(self) -> ImageRules:
        """The rules in force."""
        seen = get_stamp(self._path)
        if seen != self._seen:
            self._seen = seen
            try:
                self._rules = ImageRules.load(self._path)
            except (TerminalError, OSError) as error:
                LOG.warning("the image rules stay as they were: %s", error)
        return self._rules
