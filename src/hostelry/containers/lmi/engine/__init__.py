"""The engine process, and the seam that the server has to it."""
