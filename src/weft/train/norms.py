"""Normalisations over rows, which a rank would take over its own rows alone: said aloud."""

from __future__ import annotations

import warnings

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import Note


def note_local_norms(model: nn.Module, ranks: int) -> None:
    """Warn of torch's batch norms in a model that several ranks train.

    A model's rows lie on the ranks, so that each would take the mean and the variance of its own: the losses
    would then depend on the number of ranks. What looks at one row (`LayerNorm`) does not.

    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     note_local_norms(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), ranks=2)
    >>> print(said[0].message)
    1 (BatchNorm1d) takes the mean of each rank's own rows: losses depend on the number of ranks (2). Use ...
    """
    found = [f"{name} ({type(m).__name__})" for name, m in model.named_modules() if isinstance(m, _BatchNorm)]
    if not found or ranks == 1:
        return
    more = f" and {len(found) - 1} more take" if len(found) > 1 else " takes"
    warnings.warn(
        f"{found[0]}{more} the mean of each rank's own rows: losses depend on the number of ranks ({ranks}). "
        "Use LayerNorm, or your own loop under weft.ranks(), where it is taken over all rows.",
        Note,
        stacklevel=3,
    )
