"""A policy that shares exposure: what rankings earn, minus a penalty on unequal exposure of two groups of sellers.

python examples/fair_exposure.py
"""

from pathlib import Path

import torch

from plackett import PlackettLuce
from plackett.losses import expected_utility_loss
from plackett.report.page import Axis, ItemPlot, Section, Series, draw_picture

# Twenty items; those of the second group are a little less relevant, and would hardly ever be seen.
generator = torch.Generator().manual_seed(0)
group = torch.arange(20) % 2
relevance = torch.rand(20, generator=generator) + 0.3 * (1 - group)


def exposure_of(scores: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
    """The mean exposure of some items, differentiable: their expected utility if each of them is worth 1."""
    options = {"gain": "linear", "top": 10, "samples": 50, "generator": generator}
    return -expected_utility_loss(scores, members.double(), **options) / members.sum()


found = []
for penalty in (0.0, 20.0):
    scores = torch.zeros(20, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([scores], 0.1)
    for _ in range(100):
        optimiser.zero_grad()
        loss = expected_utility_loss(scores, relevance, gain="linear", top=10, samples=50, generator=generator)
        gap = exposure_of(scores, group == 0) - exposure_of(scores, group == 1)
        (loss + penalty * gap.square()).backward()
        optimiser.step()
    exposure = PlackettLuce(scores.detach()).exposure(top=10)  # exact
    first, second = (float(exposure[group == g].mean()) for g in (0, 1))
    earned = float(relevance.double() @ exposure)
    print(f"penalty {penalty:4.0f}: expected DCG@10 {earned:.3f}, exposure of the groups {first:.3f} and {second:.3f}")
    found.append(Series(f"penalty {penalty:.0f}", [first, second]))
print(f"all orders equally likely: {PlackettLuce(torch.zeros(20)).exposure(top=10)[0]:.3f} each")

plot = ItemPlot(["first group", "second group"], found, Axis("mean exposure of an item"))
Path("fair_exposure.png").write_bytes(draw_picture([Section("", [plot])]))
