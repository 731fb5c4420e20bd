"""One vector a text instead of tokens: poolers, which run in place of sampling."""
