"""Records of a running platform: a mix for the advice, and the forecast compared with them."""
