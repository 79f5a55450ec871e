"""SplitMix64 (Steele et al. 2014) in compiled code: a counter that grows by GOLDEN, scrambled, is a random stream."""

import numpy as np

from plackett.compilation import inner

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@inner
def scramble(x: np.uint64) -> np.uint64:
    """64 bits that look random, from 64 bits. No two inputs have the same result."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
