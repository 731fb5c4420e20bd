"""Log events of copies and programs: stored on disk, searched, and removed when they are old."""
