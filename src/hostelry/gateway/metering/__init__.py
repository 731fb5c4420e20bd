"""What is measured of every request, and how it reaches control."""
