"""Kernels in C++ for CPUs. Plain torch defines their results."""
