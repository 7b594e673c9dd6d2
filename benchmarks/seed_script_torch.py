"""examples/seed_script.py written with torch: the same sizes, steps and printed lines, so that the three rates can be compared.

The gradient is autograd's, of the same loss with respect to the filters. Threads are torch's own choice; set OMP_NUM_THREADS
for both programs to compare at another count.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch.nn.functional import conv1d, conv_transpose1d

TAPS, HOP, FILTERS, BATCH = 256, 64, 129, 16
random = torch.Generator().manual_seed(0)
signal = torch.randn(BATCH, 1, TAPS * 100, generator=random)
filters = torch.randn(FILTERS, 1, TAPS, generator=random) / TAPS
frames = torch.randn(BATCH, FILTERS, TAPS * 100 // HOP, generator=random)


def analysis(signal: torch.Tensor, filters: torch.Tensor) -> torch.Tensor:
    return conv1d(signal, filters, stride=HOP, padding=TAPS)


def synthesis(frames: torch.Tensor, filters: torch.Tensor) -> torch.Tensor:
    # torch lays a copy of the filter at every hop, which is what JAX's dilated correlation does with the filter reversed: to
    # compute the same numbers the filter is reversed here.
    return conv_transpose1d(frames, filters.flip(2), stride=HOP)


def gradient(filters: torch.Tensor) -> torch.Tensor:
    leaf = filters.detach().requires_grad_()
    loss = (synthesis(analysis(signal, leaf), leaf) ** 2).sum()
    return torch.autograd.grad(loss, leaf)[0]


def per_second(step: Callable[[], torch.Tensor], seconds: float = 3.0) -> float:
    step()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        step()
        count += 1
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    with torch.no_grad():
        print(f"analysis   {per_second(lambda: analysis(signal, filters)):9.1f} per second")
        print(f"synthesis  {per_second(lambda: synthesis(frames, filters)):9.1f} per second")
    print(f"gradient   {per_second(lambda: gradient(filters)):9.1f} per second")
