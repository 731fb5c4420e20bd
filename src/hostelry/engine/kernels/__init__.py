"""The values of a step, the interface of decoders, and kernels in C++ and Triton."""
