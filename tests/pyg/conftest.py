"""PyG is imported here, once, with its own warnings unheard; without PyG there is nothing to test."""

from __future__ import annotations

import importlib.util
import warnings

collect_ignore_glob = []
if importlib.util.find_spec("torch_geometric") is None:
    collect_ignore_glob = ["*.py"]
else:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch_geometric.nn  # noqa: F401
