"""Pure: the page pool and its accounting."""
