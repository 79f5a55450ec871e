"""The meaning of a tie: four models behind one interface.

A model names its tie parameters, and makes the likelihood of comparisons or of rankings. The likelihoods
are `ballot_likelihood` (an unknown order), `pair_likelihood` (pairs) and `dead_heats` (lists).
"""

from __future__ import annotations

from dataclasses import dataclass

from plackett.aggregation.pair_kernels import DAVIDSON, HALF, RAO_KUPPER

UNKNOWN = "unknown"


@dataclass(frozen=True)
class TieModel:
    """A meaning of a tie.

    name        the value of `ties=`
    meaning     in one line, for users who have to choose
    kind        the model of pairs in `pair_kernels`; None: a tie holds no information
    parameter   the symbol of the tie parameter; None: there is none
    for_lists   whether lists of more than two items may hold ties of this kind
    """

    name: str
    meaning: str
    kind: int | None
    parameter: str | None
    for_lists: bool


_MODELS = (
    TieModel(UNKNOWN, "one is better, but which was not seen: the tie says nothing", None, None, for_lists=True),
    TieModel("davidson", "a tie is an outcome, likely between equals", DAVIDSON, "delta", for_lists=True),
    TieModel("rao-kupper", "a tie is a difference below a threshold", RAO_KUPPER, "theta", for_lists=False),
    TieModel("half", "half a win for each side, as in Elo ratings", HALF, None, for_lists=False),
)
TIE_MODELS = {model.name: model for model in _MODELS}
"""The meanings of a tie by name."""


def question(tied: float, total: float, are: str = "comparisons ({}) ended level") -> str:
    """The text of an error that asks what tied pairs mean."""
    choices = "\n".join(
        f'  ties="{model.name}": {model.meaning}{"" if model.for_lists else " (pairs only)"}'
        for model in TIE_MODELS.values()
    )
    level = f"{tied:,.10g} of {total:,.10g} {are.format(f'{tied / total:.1%}')}"
    return f"{level}, and ties= (--ties) does not say what that means. Choose one:\n{choices}"


def question_of_ballots(tied: float, total: float) -> str:
    """As `question`, for ballots, some of which may be longer."""
    return question(tied, total, "ballots ({}) are pairs that ended level")
