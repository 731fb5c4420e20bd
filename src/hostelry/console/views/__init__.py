"""The console's views: what each reads, and the document that it shows. Pure."""
