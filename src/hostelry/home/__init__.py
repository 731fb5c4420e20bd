"""A platform's home folder, by which its processes and commands find and call each other."""
