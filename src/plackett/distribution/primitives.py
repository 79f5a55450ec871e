"""Stable building blocks: running sums of exponentials, noise, scores of any size."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def suffix_logsumexp(x: Tensor) -> Tensor:
    """logsumexp of each element and all after it along the last dimension, in log2(N) doubling steps.

    torch.logcumsumexp would work forward; its backward adds log(gradient) to the scores, where scores of 1e30 absorb it
    and the gradient is wrong by a factor. The backward of logaddexp only forms differences of neighbours.
    """
    step = 1
    while step < x.shape[-1]:
        x = torch.cat([torch.logaddexp(x[..., :-step], x[..., step:]), x[..., -step:]], -1)
        step *= 2
    return x


def decaying_sums(x: Tensor, decay: Tensor) -> Tensor:
    """y_k = x_k + decay_k y_{k-1} along the last dimension, in log2(N) doubling steps; decay_0 does not count.

    With factors of at most 1 no product overflows; dividing running sums of x by running products would.
    """
    step = 1
    while step < x.shape[-1]:
        x = torch.cat([x[..., :step], x[..., step:] + decay[..., step:] * x[..., :-step]], -1)
        decay = torch.cat([decay[..., :step], decay[..., step:] * decay[..., :-step]], -1)
        step *= 2
    return x


# An item overtakes another that is this far ahead with probability exp(-1000), which no float64 holds.
CERTAIN_GAP = 1000.0


def relative_scores(scores: Tensor) -> Tensor:
    """Scores below the best one, with gaps between neighbours in rank cut to 1000.

    Their utilities are ordered with the same probabilities, and no score is so large that it absorbs the noise: of the
    scores 1e30, 0, 0 the last two must still come in random order.
    """
    ranked, order = scores.sort(-1, descending=True)
    gaps = (ranked[..., :-1] - ranked[..., 1:]).clamp(max=CERTAIN_GAP)
    relative = functional.pad(-gaps.cumsum(-1), (1, 0))
    return torch.empty_like(relative).scatter(-1, order, relative)


def uniform(shape: Sequence[int], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Uniform on (0, 1): never 0, so that its logarithm is finite."""
    u = torch.rand(shape, dtype=like.dtype, device=like.device, generator=generator)
    return u.clamp_(min=0.5 * torch.finfo(like.dtype).eps)


def exponential(shape: Sequence[int], like: Tensor, generator: torch.Generator | None) -> Tensor:
    return -uniform(shape, like, generator).log()


def gumbel(shape: Sequence[int], like: Tensor, generator: torch.Generator | None) -> Tensor:
    return -exponential(shape, like, generator).log()
