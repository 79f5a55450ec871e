"""Preferences that form a graph: from "a before b" in any number and order to tiers (generalised rank-breaking).

edges     the forms in which a graph comes
tiers     the finest ordered partition that a graph implies, a longest chain of tiers, and what they lose
closure   how many pairs a graph implies
kernels   the compiled steps
"""

from plackett.preferences.tiers import GraphTiers, ballots_from_tiers, tiers_from_graph

__all__ = ["GraphTiers", "ballots_from_tiers", "tiers_from_graph"]
