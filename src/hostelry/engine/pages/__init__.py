"""PURE: the page pool and the owners of its pages. It knows neither tokens nor tensors."""
