"""One thread for torch: tiny tensors gain nothing from threads, and lose on busy machines."""

import torch

torch.set_num_threads(1)
