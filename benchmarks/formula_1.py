"""Careers of Formula 1 drivers over time: one leaderboard per season, in which races of nearby seasons count more.

    python benchmarks/formula_1.py

Reads formula-1/results.csv.xz in the folder of the real data sets. Retired drivers are left out of a race, as are the
few early races in which drivers shared cars.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd

from plackett import RankAggregator

SEASONS = (2001, 2006, 2011, 2016, 2021, 2026)
DRIVERS = ("michael-schumacher", "fernando-alonso", "lewis-hamilton", "sebastian-vettel", "max-verstappen")
HALF_LIFE, REACH = 2, 8  # years


def careers(table: pd.DataFrame) -> pd.DataFrame:
    """The rating of each driver in each season, with the place among the drivers of that season."""
    finished = table.assign(place=pd.to_numeric(table["position"], errors="coerce")).dropna(subset="place")
    finished = finished.sort_values(["year", "round", "place"])
    races = finished.groupby(["year", "round"])["driver"].agg(list)
    races = races[races.map(lambda drivers: len(set(drivers)) == len(drivers))]
    years = races.index.get_level_values("year").to_numpy(int)
    found = {}
    for season in SEASONS:
        age = np.abs(years - season)
        near = age <= REACH
        model = RankAggregator(prior=0.5).fit(races[near].tolist(), sample_weight=0.5 ** (age[near] / HALF_LIFE))
        board = pd.Series(model.ratings().ratings, model.items_)
        board = board[board.index.isin(finished.loc[finished["year"] == season, "driver"])]
        board += 1000.0 - board.mean()
        places = board.rank(ascending=False)
        found[season] = {name: f"{board[name]:.0f} ({places[name]:.0f})" if name in board else "" for name in DRIVERS}
    return pd.DataFrame(found).T


if __name__ == "__main__":
    folder = os.environ.get("PLACKETT_DATA") or Path(__file__).parents[2] / "shared" / "data"
    entries = pd.read_csv(Path(folder, "formula-1", "results.csv.xz"), dtype={"round": str, "position": str})
    print(careers(entries).to_string())
