"""Kernels in C++ for CPUs, and the plain-torch twins that define their results."""
