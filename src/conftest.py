"""Leaves out the doctests of modules that cannot be imported without a package of an extra."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("trl") else ["plackett/integrations/trl/trainers.py"]
collect_ignore += [] if find_spec("jax") else ["plackett/integrations/jax.py"]
