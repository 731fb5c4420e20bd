"""Triton kernels for CUDA devices, and the arrays of a step there.

Plain torch in `layers/` defines each kernel's result. The kernels have been compiled for CUDA, and
run by Triton's interpreter on a CPU; they have not run on a device yet.
"""
