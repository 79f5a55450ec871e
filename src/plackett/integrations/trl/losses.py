"""DPO in its Plackett-Luce form, with ties."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from plackett.arguments import check_float_tensor, check_range
from plackett.losses import partition_loss


def partition_dpo_loss(
    policy_logps: Tensor,
    reference_logps: Tensor,
    grades: Any,
    offsets: Any,
    beta: float = 0.1,
    *,
    weights: Any = None,
    reduction: str = "mean",
    top: int | None = None,
) -> Tensor:
    """Minus the exact log-likelihood of the graded answers, with rewards beta (log pi - log pi_ref).

    The answers of prompt b are offsets[b] to offsets[b + 1] - 1. Answers of equal grade are tied, and their order is
    unknown. Two answers without a tie give the sigmoid loss of DPO (Rafailov et al. 2023); K answers without ties give
    its Plackett-Luce form.

    >>> import torch
    >>> policy, reference = torch.tensor([-4.0, -6.0, -5.0]), torch.tensor([-5.0, -5.0, -5.0])
    >>> partition_dpo_loss(policy, reference, grades=[2, 1, 1], offsets=[0, 3])
    tensor(1.0019)

    Args:
        policy_logps, reference_logps: log probability of each answer given its prompt, 1-D, summed over its tokens.
        grades: one per answer, higher is better.
        beta: strength of the penalty that keeps the policy near the reference.
        weights, reduction, top: see `plackett.losses.partition_loss`.
    """
    check_float_tensor("policy_logps", policy_logps)
    check_float_tensor("reference_logps", reference_logps)
    if policy_logps.dim() != 1 or policy_logps.shape != reference_logps.shape:
        raise ValueError(
            f"policy_logps and reference_logps must hold one value per answer, got shapes {tuple(policy_logps.shape)} "
            f"and {tuple(reference_logps.shape)}"
        )
    check_range("beta", beta, 0.0)
    rewards = beta * (policy_logps - reference_logps)
    return partition_loss(rewards, grades, offsets=offsets, weights=weights, reduction=reduction, top=top)
