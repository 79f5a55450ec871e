"""Graphs of preferences: from "a before b" in any number and order to tiers (generalised rank-breaking).

graph_tiers     the finest ordered partition that a graph implies, and a longest chain of tiers: start reading here
edges           the forms in which a graph may be given
graph_breaking  ballots from graphs of many voters: tiers, pairs, or pairs of separators
graph_fitting   Monte Carlo EM, for aggregation and linear models
closure         how many pairs a graph implies

May import data (for ballots), likelihood and the foundation, never torch.
"""

from plackett.preferences.graph_breaking import ballots_from_graphs
from plackett.preferences.graph_tiers import GraphTiers, ballots_from_tiers, tiers_from_graph

__all__ = ["GraphTiers", "ballots_from_graphs", "ballots_from_tiers", "tiers_from_graph"]
