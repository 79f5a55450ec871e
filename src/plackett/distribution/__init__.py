"""The Plackett-Luce distribution over orders, as a torch distribution.

plackett_luce  the distribution and its divergence: start reading here
given_tiers    orders drawn given tiers
places         the probability of a place among the first k
subsets        sums over all orders of few items
discounts      the weight of each place in an exposure or utility
primitives     numerically stable building blocks

May import torch, the likelihood and the foundation (arguments, lists).
"""

from plackett.distribution.plackett_luce import EntropyEstimate, PlackettLuce

__all__ = ["EntropyEstimate", "PlackettLuce"]
