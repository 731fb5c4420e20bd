"""Tiny tensors gain nothing from threads, and lose much where others use the cores too."""

import torch

torch.set_num_threads(1)
