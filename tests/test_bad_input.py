"""Bad input gets a ValueError that names the argument, what was expected and what came."""

import numpy as np
import pytest

import plackett
from plackett.data import make_tiered_lists
from plackett.likelihood import approximate_derivatives
from plackett.lists import make_lists

SCORES = np.array([0.5, -0.5, 1.0])
LABELS = np.array([1, 0, 0])
BOTH = (plackett.partition_log_likelihood, plackett.partition_derivatives)

CASES = {
    "NaN score": ({"scores": np.array([0.0, np.nan, 1.0])}, r"scores must be finite.*got nan at item 1"),
    "infinite score": ({"scores": np.array([0.0, 1.0, np.inf])}, r"scores must be finite.*got inf at item 2"),
    "score out of range": ({"scores": np.array([0.0, 1.0, 1e305])}, r"scores must be .*at most 1e\+300"),
    "wrong length": ({"labels": np.array([1, 0])}, r"labels must have the shape of scores, \(3,\), got \(2,\)"),
    "NaN label": ({"labels": np.array([1.0, np.nan, 0.0])}, r"labels must be finite, got nan at item 1"),
    "complex scores": ({"scores": SCORES * 1j}, r"scores must be real numbers, got an array of complex128"),
    "text labels": ({"labels": np.array(["a", "b", "c"])}, r"labels must be real numbers"),
    "three dimensions": ({"scores": np.zeros((1, 1, 3)), "labels": np.zeros((1, 1, 3))}, r"scores must have one dim"),
    "decreasing offsets": ({"offsets": [0, 2, 1, 3]}, r"offsets must not decrease, got 2 followed by 1 at position 1"),
    "offsets from 1": ({"offsets": [1, 3]}, r"offsets must begin with 0, got 1"),
    "offsets too short": ({"offsets": [0, 2]}, r"offsets must end with the number of items, 3, got 2"),
    "no offsets": ({"offsets": []}, r"offsets must hold at least one number"),
    "fractional offsets": ({"offsets": [0, 1.5, 3]}, r"offsets must hold whole numbers"),
    "offsets with rows": ({"scores": SCORES[None], "labels": LABELS[None], "offsets": [0, 3]}, "offsets belong to"),
    "where not boolean": ({"where": np.array([1, 0, 1])}, r"where must be boolean, got int64"),
    "where of another shape": ({"where": np.array([True])}, r"where must have the shape of scores, \(3,\), got \(1,\)"),
    "offsets and where": ({"offsets": [0, 3], "where": LABELS == 1}, r"at most one of offsets and where"),
    "top=0": ({"top": 0}, r"top must be a whole number of at least 1, or None, got 0"),
    "top=True": ({"top": True}, r"top must be a whole number of at least 1, or None, got True"),
    "masked array": ({"scores": np.ma.masked_invalid(SCORES)}, r"scores must not be a masked array.*where="),
    "top=1.5": ({"top": 1.5}, r"top must be a whole number of at least 1, or None, got 1.5"),
    "tol=0": ({"tol": 0.0}, r"tol must be a number from 1e-15 to 0.1, or None, got 0.0"),
    "tol=NaN": ({"tol": float("nan")}, r"tol must be a number"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("function", BOTH)
def test_likelihood(name, function):
    arguments, message = CASES[name]
    given = {"scores": SCORES, "labels": LABELS, **arguments}
    with pytest.raises(ValueError, match=message):
        function(given.pop("scores"), given.pop("labels"), **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quadrature": "simpson"}, 'quadrature must be "adaptive" or "midpoint", got \'simpson\''),
        ({"quadrature": "midpoint", "intervals": 0}, "intervals must be a whole number of at least 1, got 0"),
        ({"quadrature": "midpoint", "shift": float("inf")}, "shift must be a finite number, got inf"),
        ({"quadrature": "midpoint", "scores": np.array([0.0, np.nan, 1.0])}, "scores must be finite, got nan"),
        ({"quadrature": "midpoint", "top": 2}, "top must be None, got 2"),
    ],
)
def test_quadrature(options, message):
    with pytest.raises(ValueError, match=message):
        plackett.partition_log_likelihood(options.pop("scores", SCORES), LABELS, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"qid": [1, 1, 2], "group": [2, 1]}, "at most one of offsets, qid and group may be given, got qid and group"),
        ({"group": [2, 2]}, "group must add up to the number of rows, 3, got a sum of 4"),
        ({"group": [4, -1]}, "group must hold sizes of at least 0, got -1 at position 1"),
        ({"group": [[3]]}, "group must be one-dimensional, got 2 dimensions"),
        ({"group": ["3"]}, "group must hold whole numbers"),
        ({"group": [2**62] * 4 + [3]}, "group must hold whole numbers of at most"),
        ({"offsets": [0, 1e30, 3]}, "offsets must hold whole numbers of at most"),
        ({"qid": np.array(["a", float("nan"), "b"], dtype=object)}, "qid must not be missing or NaN, got one at row 1"),
        ({"qid": np.array(["a", 1, "b"], dtype=object)}, "qid must hold values of one kind"),
        ({"qid": [1, 1]}, "qid must hold one value for each of the 3 rows"),
        ({"qid": [1.0, np.nan, 2.0]}, "qid must not be missing or NaN, got one at row 1"),
    ],
)
def test_lists(options, message):
    with pytest.raises(ValueError, match=message):
        make_lists(3, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ties": "exact"}, "ties must be one of random, efron, breslow, got 'exact'"),
        ({"ties": "efron", "bottom": "no"}, 'bottom must be "unordered" or "ordered", got \'no\''),
    ],
)
def test_approximations(options, message):
    with pytest.raises(ValueError, match=message):
        approximate_derivatives(SCORES, LABELS, **options)


@pytest.mark.parametrize("ties", ["efron", "breslow", "random"])
def test_approximations_of_nan(ties):
    with pytest.raises(ValueError, match=r"scores must be finite.*got nan at item 2"):
        approximate_derivatives(np.array([0.0, 1.0, np.nan]), LABELS, ties=ties, random_state=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tier_sizes": (1, 0)}, "tier_sizes must hold sizes of at least 1"),
        ({"coefficients": (1.0, float("nan"))}, "coefficients must be a sequence of finite numbers"),
        ({"n_lists": -1}, "n_lists must be at least 0, got -1"),
    ],
)
def test_generators(options, message):
    with pytest.raises(ValueError, match=message):
        make_tiered_lists(**options)


@pytest.mark.parametrize("number", [0, -1, 1.5, "two", True])
def test_threads(number):
    with pytest.raises(ValueError, match="number must be a whole number of at least 1, or None, got"):
        plackett.set_num_threads(number)


def test_single_number_for_a_set():
    with pytest.raises(ValueError, match="others must have at least one dimension"):
        plackett.preference_log_probability(SCORES, 1.0)


def test_sets_are_named():
    with pytest.raises(ValueError, match="others must be finite, got nan at position 1"):
        plackett.preference_log_probability(SCORES, np.array([0.0, np.nan]))
    with pytest.raises(ValueError, match=r"others must have batch dimensions that broadcast .* \(2,\), got \(3,\)"):
        plackett.preference_log_probability(np.zeros((2, 1)), np.zeros((3, 1)))
    assert plackett.preference_log_probability(np.zeros((0, 2)), np.zeros((0, 3))).shape == (0,)


def test_tensors_are_pointed_to_autograd():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="partition_derivatives takes NumPy arrays"):
        plackett.partition_derivatives(torch.zeros(3), LABELS)
