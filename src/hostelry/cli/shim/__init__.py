"""The folder that `hostelry exec` puts in front of a program's PYTHONPATH."""
