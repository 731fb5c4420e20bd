"""A platform's home folder: what its processes and commands need to find and to call each other."""
