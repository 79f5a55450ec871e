"""The Plackett-Luce distribution over orders.

plackett_luce  the distribution and its divergence
given_tiers    orders drawn given tiers
places         the probability of a place among the first k
subsets        sums over all orders of few items
primitives     stable building blocks
"""

from plackett.distribution.plackett_luce import EntropyEstimate, PlackettLuce

__all__ = ["EntropyEstimate", "PlackettLuce"]
