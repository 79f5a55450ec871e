"""How worths of items are estimated from rankings and comparisons. The estimator is `plackett.RankAggregator`.

Start with `problem`: what a likelihood has to offer, and the `WorthProblem` that `solvers` solve. Likelihoods are
`ballot_likelihood` (tiers of unknown order), `pair_likelihood` (comparisons of two, with ties) and `dead_heats` (lists
with ties as outcomes); `tie_models` names what a tie means. `reading` turns data of any form into an `evidence`, of
`ballots`, of pairs (`pair_evidence`, `pair_rows`) or of graphs (`graph_evidence`). `fitting` checks that a maximum
exists (`connectivity`) and finds it, with `item_features` if there are any; `covariances` and `bootstrap` give its
errors, `voters` and `groups` what depends on voters and categories. `leaderboard` has the methods of a fitted model,
by way of `inference`, `simultaneous`, `ratings`, `prediction`, `summary`, `board_frame`, `worth_figure` and
`board_figures`; `saved_boards` turns it into arrays for files; `pair_files` reads lines of winners and losers. May
import: `preferences`, `data`, `likelihood` and the foundation; never torch.
"""

from plackett.aggregation.pair_files import load_edges
from plackett.aggregation.voters import Agreement, agreements
from plackett.errors import NoMaximumError

__all__ = ["Agreement", "NoMaximumError", "agreements", "load_edges"]
