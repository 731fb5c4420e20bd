"""Log events of copies and programs: kept on disk, searched, and removed in time."""
