"""Starting copies: as processes, forks and containers."""
