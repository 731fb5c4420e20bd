"""Reader of adapters for a model that several ranks hold together."""

from dataclasses import replace
from pathlib import Path

from hostelry.engine.lora.host_adapter import HostAdapter
from hostelry.engine.lora.layout import AdapterRanks
from hostelry.engine.lora.reader import AdapterReader
from hostelry.engine.lora.share import count_share_pages
from hostelry.engine.lora.targets import TargetModules


class SharedReader:
    """A FolderReader whose adapters have the number of pages that they take in every rank's pool.

    The adapters themselves are whole. Its methods raise the errors of `reader.AdapterReader`, and
    AdapterError if a row does not fit into a page.
    """

    def __init__(
        self, reader: AdapterReader, targets: TargetModules, world_size: int, page_elements: int
    ) -> None:
        self._reader = reader
        self._targets = targets
        self._world_size = world_size
        self._page_elements = page_elements
        self._num_pages: dict[AdapterRanks, int] = {}

    @property
    def max_folder_bytes(self) -> int:
        """The most bytes that the files of an acceptable adapter can have."""
        return self._reader.max_folder_bytes

    @property
    def form_name(self) -> str:
        """The name of the form that adapters are read into."""
        return self._reader.form_name

    def read(self, folder: Path) -> HostAdapter:
        """The checked adapter in `folder`."""
        return self._replace_num_pages(self._reader.read(folder))

    def save(self, adapter: HostAdapter, folder: Path) -> int:
        """Write the adapter in its form into `folder`. Returns the bytes written."""
        return self._reader.save(adapter, folder)

    def restore(self, folder: Path, content_id: str) -> HostAdapter:
        """The adapter that `save` wrote there."""
        return self._replace_num_pages(self._reader.restore(folder, content_id))

    def num_pages(self, ranks: AdapterRanks) -> int:
        """Pages of an adapter of these ranks in every pool."""
        num_pages = self._num_pages.get(ranks)
        if num_pages is None:
            num_pages = count_share_pages(
                self._targets, ranks, self._world_size, self._page_elements
            )
            if len(self._num_pages) >= 256:
                self._num_pages.clear()
            self._num_pages[ranks] = num_pages
        return num_pages

    def _replace_num_pages(self, adapter: HostAdapter) -> HostAdapter:
        num_pages = self.num_pages(adapter.layout.ranks)
        return replace(adapter, summary=replace(adapter.summary, num_pages=num_pages))
