"""The console's views: the sources and the document of each. Pure."""
