"""Models of a multi-model container, loaded and evicted as `placement` decides."""
