"""Numerical limits of the quadrature, shared by the compiled kernels and the torch versions.

LARGEST_ANGLE       How far a line of integration may be turned when a spacing is chosen. At pi / 2 the integrand stops
                    decaying; 1.25 keeps cos(angle) above 0.3.
LARGEST_LOG_ODDS    Log odds are cut here: exp(690) times the largest t is still finite, and above it 1 - exp(-a t) is
                    1 at every node.
DEEP_LOG_Z          An item with z = a t below exp(-40) = 4e-18 at every node has the factor z itself to all digits, so
                    its log odds leave the integral. The nodes of a tier of n items reach t of at most 2 (n + 50): the
                    mode has t <= n + 1, and the tail to its right is double exponential. Hence the threshold
                    DEEP_LOG_Z - log(n + DEEP_ITEMS) of `deep_threshold`.
LARGEST_CLOSED_FORM Tiers up to this size are summed over their subsets: 2^6 sets cost less than the nodes.
MOST_NODES          Room for nodes; the widest interval (a tier far above the rest) needs a few thousand.
LARGEST_SCORE       Beyond it differences of scores could overflow.
"""

LARGEST_ANGLE = 1.25
LARGEST_LOG_ODDS = 690.0
DEEP_LOG_Z, DEEP_ITEMS = -40.0, 50.0
LARGEST_CLOSED_FORM = 6
MOST_NODES = 16384
LARGEST_SCORE = 1e300
