"""Ranking data: containers and generators."""

from plackett.data.containers import RankingData
from plackett.data.generators import make_tiered_lists

__all__ = ["RankingData", "make_tiered_lists"]
