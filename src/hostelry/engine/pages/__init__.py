"""PURE: the page pool and the owners of its pages; knows neither tokens nor tensors."""
