"""The console's views: for each, the queries that it needs and the document that it shows. Pure."""
