"""Classifiers by embeddings, to which Ma et al. (2021) compare theirs in table 2: LEML and SLEEC."""

from plackett.experiments.baselines.leml import LEML
from plackett.experiments.baselines.sleec import SLEEC

__all__ = ["LEML", "SLEEC"]
