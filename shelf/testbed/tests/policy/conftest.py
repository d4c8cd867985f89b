"""One thread: these networks are so small that a second one only waits for the first."""

import torch

torch.set_num_threads(1)
