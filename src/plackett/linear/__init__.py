"""Linear scores w^T x.

features            columns centred within lists and scaled
objectives          likelihoods of tiers as losses of scores, with exact gradients and Hessian products
solvers             L-BFGS and trust-region Newton, L1 and L2 penalties
inference           Newton's last steps, estimates that are infinite, covariance
summary             coefficients as a table
coordinate_ascent   any metric of places, by exact line searches
kernels             compiled code
"""
