"""PURE: the page pool and who owns which page; knows neither tokens nor tensors."""
