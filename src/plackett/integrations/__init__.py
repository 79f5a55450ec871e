"""The exact losses in other training libraries.

    sentence_transformers   losses for CrossEncoder and CrossEncoderTrainer
    trl                     reward models and DPO from several graded answers per prompt
    jax                     the loss in pure JAX, in the conventions of rax
    tracking                callbacks for TensorBoard, MLflow and Weights & Biases

Start with the one for your library. Each module needs the extra of its name (`pip install 'plackett[trl]'`) and is
imported by itself: this package imports none of them. May import everything below; nothing imports from here.
"""

from importlib import import_module
from typing import Any

__all__ = ["jax", "sentence_transformers", "tracking", "trl"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"plackett.integrations.{name}")
    raise AttributeError(f"module 'plackett.integrations' has no attribute {name!r}")
