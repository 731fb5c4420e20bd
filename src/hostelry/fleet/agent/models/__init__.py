"""Models of a multi-model container: downloaded, loaded, evicted as `placement` decides."""
