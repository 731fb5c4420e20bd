"""`hostelry prune`: removal of uploads and former models that nothing uses."""
