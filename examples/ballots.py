"""Ballots: estimate the worth of candidates from rankings with ties and incomplete rankings.

python examples/ballots.py
"""

from plackett import RankAggregator

ballots = [
    ["Ada", "Bea", "Cyd", "Dot"],
    ["Bea", {"Ada", "Cyd"}],  # Ada and Cyd are tied, Dot is not ranked
    [{"Ada", "Bea"}, "Dot"],
    ["Cyd", "Ada", {"Bea", "Dot"}],
    ["Dot", "Bea", "Ada"],
    ["Bea", "Cyd", "Dot", "Ada"],
]
model = RankAggregator().fit(ballots, sample_weight=[31, 22, 17, 12, 9, 9])
print(model.summary())
model.plot("ballots.png")
