"""Data capture: spool files of gateway workers become objects."""
