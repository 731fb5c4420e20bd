"""One vector per text instead of tokens: poolers, which replace sampling."""
