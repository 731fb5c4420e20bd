"""Triton kernels for CUDA devices, and the arrays of a step there.

Plain torch in `layers/` defines each kernel's result: `tests/gpu` compares them on a device, and
unit tests in Triton's interpreter on a CPU.
"""
