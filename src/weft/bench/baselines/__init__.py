"""The papers' own algorithms, named after them: see README.md."""

from .train import BASELINES, check_baseline, make, serial, train

__all__ = ["BASELINES", "check_baseline", "make", "serial", "train"]
