"""One HTML page of a run, or of several: what it learned, where the time went, what moved."""

from __future__ import annotations

from .page import page
from .runs import Run, read_run

__all__ = ["Run", "page", "read_run"]
