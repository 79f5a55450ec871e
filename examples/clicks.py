"""Clicks: a user clicked a few of the items shown. Clicked items are a tier above the others; nothing orders a tier.

python examples/clicks.py
"""

import numpy as np

from plackett import LinearRanker
from plackett.data import make_clicks, make_tiered_lists

# Users see twenty items in random order and examine all of them (eta=0), so that place has no bearing on clicks.
truth = np.array([1.0, -0.5])
pages = make_tiered_lists(500, tier_sizes=(2, 4, 14), coefficients=truth, random_state=0)
clicks, _ = make_clicks(pages, eta=0.0, noise=0.02, random_state=0)

model = LinearRanker().fit(clicks)
print(model.summary())
print(f"direction: {model.coef_ / np.linalg.norm(model.coef_)}, truth {truth / np.linalg.norm(truth)}")
