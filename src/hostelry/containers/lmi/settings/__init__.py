"""The server's configuration, from every source."""
