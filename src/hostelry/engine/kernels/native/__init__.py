"""Kernels in C++ for CPUs; plain torch defines their results."""
