"""Race: the model as a distribution. Who comes in first, who among the first three, and how sure is the order?

python examples/race.py
"""

from pathlib import Path

import torch

from plackett import PlackettLuce
from plackett.report.page import Axis, ItemPlot, Section, Series, draw_picture

names = ["Ada", "Bea", "Cyd", "Dot", "Eve", "Fay"]
race = PlackettLuce(torch.tensor([1.0, 0.8, 0.3, 0.0, -0.5, -0.9], dtype=torch.float64))

first = race.first_place_probabilities
podium = race.top_probabilities(3)
for name, one, three in zip(names, first.tolist(), podium.tolist(), strict=True):
    print(f"{name}: first {one:.2f}, among the first three {three:.2f}")
together = race.log_prob_tiers(torch.tensor([1, 1, 1, 0, 0, 0])).exp().item()
print(f"Ada, Bea and Cyd are the first three, in any order: {together:.3f}")

plot = ItemPlot(names, [Series("first", first), Series("among the first three", podium)], Axis("probability"))
Path("race.png").write_bytes(draw_picture([Section("", [plot])]))
