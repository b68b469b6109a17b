"""Where the weights of a model lie: whole on every rank, or the first layer's cut with the features."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from torch import Tensor, nn

from ..comm import Communicator
from ..nn import Model
from ..parallel import Columns, Rows
from ..parallel.propagate import Wrap


@dataclass
class Placed:
    """Where the weights lie that an encoder trains.

    cut      parameters that are cut by rows among the ranks of `group`, by name
    twins    the ranks that have the same part of them
    """

    comm: Communicator
    columns: Columns | None = None
    cut: tuple[str, ...] = ()
    group: Communicator | None = None
    twins: Communicator | None = None

    @property
    def copies(self) -> int:
        """How many ranks have the same part of what is cut."""
        return 1 if self.twins is None else self.twins.size

    def dry(self, wrap: Wrap) -> Placed:
        group = None if self.group is None else wrap(self.group)
        columns = self.columns
        if columns is not None and group is not None:
            columns = Columns(Rows(wrap(columns.rows.comm), columns.rows.blocks), group, columns.width)
        twins = None if self.twins is None else wrap(self.twins)
        return Placed(wrap(self.comm), columns, self.cut, group, twins)

    def whole(self, name: str, own: Tensor) -> Tensor:
        """A weight or gradient as a whole, from everybody's rows where it is cut."""
        if self.columns is None or self.group is None or name not in self.cut:
            return own
        return self.group.all_gather(own.contiguous(), self.columns.sizes, phase="collect")


def cut_names(model: Model) -> tuple[str, ...]:
    """The parameters that are cut with the features, by name."""
    return tuple(f"layers.0.{name}" for name in getattr(model.layers[0], "cut", ()))


def sliced(model: Model, begin: int, end: int) -> Model:
    """A copy with rows begin … end − 1 of the parameters that are cut."""
    out = copy.deepcopy(model)
    layer = out.layers[0]
    for name in getattr(layer, "cut", ()):
        whole: Tensor = getattr(layer, name)
        setattr(layer, name, nn.Parameter(whole.detach()[begin:end].clone()))
    return out
