"""Triton kernels for CUDA devices, and what a step is made of there.

Each kernel's twin in plain torch, which defines its result, is in `layers/`. They have been
compiled for CUDA, and run by Triton's interpreter on a CPU; they have not run on a device yet.
"""
