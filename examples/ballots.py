"""Ballots: what candidates are worth, from rankings with ties and rankings of only some of them.

python examples/ballots.py
"""

from plackett import RankAggregator

ballots = [
    ["Ada", "Bea", "Cyd", "Dot"],
    ["Bea", {"Ada", "Cyd"}],  # Ada and Cyd level, Dot not ranked
    [{"Ada", "Bea"}, "Dot"],
    ["Cyd", "Ada", {"Bea", "Dot"}],
    ["Dot", "Bea", "Ada"],
    ["Bea", "Cyd", "Dot", "Ada"],
]
model = RankAggregator().fit(ballots, sample_weight=[31, 22, 17, 12, 9, 9])
print(model.summary())
