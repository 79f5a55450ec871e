"""Clicks: learn from the items a user clicked. Clicked items form a tier above the rest; tiers have no inner order.

python examples/clicks.py
"""

from pathlib import Path

import numpy as np

from plackett import LinearRanker
from plackett.data import make_clicks, make_tiered_lists
from plackett.report.page import Axis, ItemPlot, Section, Series, draw_picture

# Users see twenty items in random order and examine all of them (eta=0), so clicks do not depend on position.
truth = np.array([1.0, -0.5])
pages = make_tiered_lists(500, tier_sizes=(2, 4, 14), coefficients=truth, random_state=0)
clicks, _ = make_clicks(pages, eta=0.0, noise=0.02, random_state=0)

model = LinearRanker().fit(clicks)
print(model.summary())
print(f"direction: {model.coef_ / np.linalg.norm(model.coef_)}, truth {truth / np.linalg.norm(truth)}")

low, high = model.confidence_intervals().T
plot = ItemPlot(
    ["feature 0", "feature 1"],
    [Series("learned from clicks", model.coef_, low=low, high=high), Series("preference without clicks", truth)],
    Axis("coefficient, with 95% interval"),
)
Path("clicks.png").write_bytes(draw_picture([Section("", [plot])]))
