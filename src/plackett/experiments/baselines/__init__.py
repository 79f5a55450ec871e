"""LEML (`leml`) and SLEEC (`sleec`), the embedding classifiers that Ma et al. (2021) compare with in table 2.

Start with `base`, which both share. May import `estimators` and everything below.
"""

from plackett.experiments.baselines.leml import LEML
from plackett.experiments.baselines.sleec import SLEEC

__all__ = ["LEML", "SLEEC"]
