"""Triton kernels for CUDA devices, and what a step is made of there.

Each kernel's twin in plain torch, which defines its result, is in `layers/`. They were compiled for
CUDA and run by Triton's interpreter on a CPU; where they have run on a device, docs/engine.md says.
"""
