"""The graph: rows of in-neighbours (CSR), with what its vertices carry."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.errors import UserError
from weft.graph.arrays import Of, check_array, coerced, is_kind, largest, of_loops
from weft.graph.guard import check_fits
from weft.graph.rows import check_csr, compress, index_dtype, out_of_range, vertex_ids

MASKS = ("train_mask", "val_mask", "test_mask")
PAIRS = ("val_pairs", "val_negatives", "test_pairs", "test_negatives")
NAMED: dict[Of, str] = {"arc": "arc_data", "vertex": "vertex_data"}
_TENSORS = ("indptr", "indices", "weights", "features", "labels", *MASKS, "ids", *PAIRS)


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A directed graph of n vertices and nnz arcs, validated on entry.

        indptr    [n+1] int64
        indices   [nnz] int32 (int64 from 2³¹ vertices)   row i: the in-neighbours of i, ascending, each once
        weights   [nnz] float32 or float64, or None        A[i, j], the weight of arc j → i
        features  [n, f] float32 or float64, or None
        labels    [n] int64, -1 = unlabelled; or [n, c] bool where a vertex has many labels; or None
        train_mask, val_mask, test_mask       [n] bool, or None; no vertex in two of them
        ids       [n] int64, the vertices' names in the source where those are not 0..n-1; or None
        val_pairs, test_pairs          [m, 2] int64, links (source, target) to predict, no arcs here; or None
        val_negatives, test_negatives  [m, 2] int64, pairs that are no links, to compare with; or None
        arc_data     name → [nnz] or [nnz, d], what arcs carry beside weights, in the order of `indices`
        vertex_data  name → [n] or [n, d], what vertices carry beside the above (`weft.graph.arrays`)

    So `A @ H` aggregates *into* i. Tensors may lie over memory-mapped files; nothing writes to them.

    >>> g = Graph.from_arcs([0, 0, 2], [1, 2, 1])        # arcs 0→1, 0→2, 2→1
    >>> g
    Graph(graph: 3 vertices, 3 arcs)
    >>> g.indptr.tolist(), g.indices.tolist()
    ([0, 0, 2, 3], [0, 2, 0])
    """

    indptr: Tensor
    indices: Tensor
    weights: Tensor | None = None
    features: Tensor | None = None
    labels: Tensor | None = None
    train_mask: Tensor | None = None
    val_mask: Tensor | None = None
    test_mask: Tensor | None = None
    ids: Tensor | None = None
    val_pairs: Tensor | None = None
    val_negatives: Tensor | None = None
    test_pairs: Tensor | None = None
    test_negatives: Tensor | None = None
    arc_data: dict[str, Tensor] = field(default_factory=dict)
    vertex_data: dict[str, Tensor] = field(default_factory=dict)
    name: str = "graph"
    num_classes: int = 0
    """Number of classes; 0 means: take it from the labels."""

    def __post_init__(self) -> None:
        self._coerce()
        self.validate()
        if self.labels is not None and not self.num_classes:
            object.__setattr__(self, "num_classes", _count_classes(self.labels))

    # Making graphs

    @classmethod
    def from_arcs(
        cls,
        source: Any,
        target: Any,
        num_nodes: int | None = None,
        weights: Any = None,
        arc_data: Mapping[str, Any] | None = None,
        **rest: Any,
    ) -> Graph:
        """The graph of the arcs source[k] → target[k]: row = target, column = source.

        An arc given twice is kept once, with the sum of its weights where there are weights, and with the
        data of the first. Without `num_nodes`, n is the largest id plus one.

        >>> Graph.from_arcs([0, 0], [1, 1], weights=[2.0, 3.0]).weights
        tensor([5.])
        """
        rows, cols = vertex_ids(target, "target"), vertex_ids(source, "source")
        if len(rows) != len(cols):
            raise UserError(
                f"{len(cols)} sources but {len(rows)} targets. Give one source and one target an arc."
            )
        top = int(max(rows.max(initial=-1), cols.max(initial=-1)))
        n = top + 1 if num_nodes is None else int(num_nodes)
        if top >= n:
            raise UserError(
                f"vertex id {top} is out of range for {n} vertices (0 to {n - 1}). Correct the id."
            )
        values = None if weights is None else _as_weights(weights, len(rows))
        check_fits(8 * (n + 1) + 24 * len(rows), f"a graph of {n} vertices")
        data = coerced(arc_data, "arc")
        for name, x in data.items():
            check_array(name, x, len(rows), "arc", trusted=True)  # the graph looks at the numbers
        found = compress(rows, cols, values, n, np.add, track=bool(data))
        return cls(*found[:3], arc_data=_kept(data, found.kept), **rest)

    def replace(self, **changes: Any) -> Graph:
        """A copy with some fields exchanged; only those are validated again.

        >>> Graph.from_arcs([0], [1]).replace(name="arc")
        Graph(arc: 2 vertices, 1 arcs)
        """
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        wrong = set(changes) - set(fields)
        if wrong:
            raise TypeError(f"Graph has no field {sorted(wrong)[0]!r}")
        if "labels" in changes and "num_classes" not in changes:
            changes["num_classes"] = 0
        if self.arc_data and {"indptr", "indices"} & set(changes) and "arc_data" not in changes:
            raise UserError(
                f"the arcs change and {', '.join(self.arc_data)} would no longer belong to them. "
                "Give arc_data too."
            )
        new = object.__new__(Graph)
        for key, value in (fields | changes).items():
            object.__setattr__(new, key, value)
        new._coerce()
        kept = {key for key in _TENSORS if getattr(new, key) is fields[key]}
        for key in NAMED.values():
            known = fields[key]
            kept |= {f"{key}.{name}" for name, x in getattr(new, key).items() if x is known.get(name)}
        new.validate(trusted=frozenset(kept))
        if new.labels is not None and not new.num_classes:
            object.__setattr__(new, "num_classes", _count_classes(new.labels))
        return new

    # What it is

    @property
    def num_nodes(self) -> int:
        """n, the number of vertices."""
        return len(self.indptr) - 1

    @property
    def num_arcs(self) -> int:
        """nnz, the number of stored arcs; an undirected edge is two of them, a self-loop one."""
        return len(self.indices)

    @property
    def num_features(self) -> int:
        """f, the width of a vertex's features; 0 without features."""
        return 0 if self.features is None else self.features.shape[1]

    @property
    def multilabel(self) -> bool:
        """Whether a vertex may have many labels: labels are then [n, c] bool."""
        return self.labels is not None and self.labels.dim() == 2

    @property
    def rows(self) -> Tensor:
        """[nnz] int64: the target of every arc, beside `indices`, its source.

        >>> Graph.from_arcs([0, 0, 2], [1, 2, 1]).rows
        tensor([1, 1, 2])
        """
        n = self.num_nodes
        return torch.repeat_interleave(torch.arange(n, device=self.indptr.device), self.indptr.diff())

    @property
    def has_self_loops(self) -> bool:
        """Whether some arc i → i is stored."""
        return bool((self.rows == self.indices).any())

    @property
    def is_symmetric(self) -> bool:
        """Whether A = Aᵀ, weights included.

        >>> Graph.from_arcs([0], [1]).is_symmetric, Graph.from_arcs([0], [1]).symmetrised().is_symmetric
        (False, True)
        """
        other = self.replace(arc_data={}).transposed()
        same = torch.equal(self.indptr, other.indptr) and torch.equal(self.indices, other.indices)
        if self.weights is None or other.weights is None:
            return same
        return same and torch.equal(self.weights, other.weights)

    def __repr__(self) -> str:
        parts = [f"{self.num_nodes} vertices", f"{self.num_arcs} arcs"]
        if self.features is not None:
            parts.append(f"{self.num_features} features")
        if self.num_classes:
            parts.append(f"{self.num_classes} classes")
        if self.arc_data:
            parts.append(f"arcs with {', '.join(self.arc_data)}")
        return f"Graph({self.name}: {', '.join(parts)})"

    # The same vertices with other arcs

    def transposed(self) -> Graph:
        """Aᵀ: every arc reversed.

        >>> Graph.from_arcs([0, 0], [1, 2]).transposed().indptr
        tensor([0, 2, 2, 2])
        """
        rows, cols, values = self._arcs()
        return self._with_arcs(cols, rows, values)

    def symmetrised(self) -> Graph:
        """Every arc in both directions; where both exist already, the larger weight counts for both.

        An arc that is new carries the data of its mirror; those that exist already keep theirs.

        >>> g = Graph.from_arcs([0, 1, 1], [1, 0, 2], weights=[1.0, 4.0, 2.0]).symmetrised()
        >>> g.rows.tolist(), g.indices.tolist(), g.weights.tolist()
        ([0, 1, 1, 2], [1, 0, 2, 1], [4.0, 4.0, 2.0, 2.0])
        """
        rows, cols, values = self._arcs()
        both = None if values is None else np.concatenate([values, values])
        rows, cols = np.concatenate([rows, cols]), np.concatenate([cols, rows])
        return self._with_arcs(rows, cols, both, np.maximum)

    def with_self_loops(self) -> Graph:
        """A + the missing part of I: a loop of weight 1 at each vertex that has none.

        Of arc data every loop, also one that was there, gets the mean over the other arcs of its row, and
        whole numbers one more than the largest of the graph (`weft.graph.arrays.of_loops`); "features" that
        are whole get a mean, too, and become float64.

        >>> Graph.from_arcs([0, 1], [1, 1]).with_self_loops().indices.tolist()
        [0, 0, 1]
        """
        rows, cols, values = self._arcs()
        lacking = np.ones(self.num_nodes, dtype=bool)
        lacking[rows[rows == cols]] = False
        (new,) = np.nonzero(lacking)
        if not len(new) and not self.arc_data:
            return self
        if values is not None:
            values = np.concatenate([values, np.ones(len(new), values.dtype)])
        data = {}
        for name, x in self.arc_data.items():
            row, loop = torch.from_numpy(rows), torch.from_numpy(rows == cols)
            x = x if is_kind(name, floating=False) or x.is_floating_point() else x.double()
            fill = of_loops(x, row, loop, self.num_nodes, largest(x))
            own = torch.cat([x.to(fill.dtype), fill[torch.from_numpy(new)]])
            own[: len(x)][loop] = fill[row[loop]]
            data[name] = own
        rows, cols = np.concatenate([rows, new]), np.concatenate([cols, new])
        return self._with_arcs(rows, cols, values, data=data)

    def without_self_loops(self) -> Graph:
        """A without its diagonal.

        >>> Graph.from_arcs([0, 1], [1, 1]).without_self_loops().num_arcs
        1
        """
        rows, cols, values = self._arcs()
        keep = rows != cols
        values = None if values is None else values[keep]
        data = {name: x[torch.from_numpy(keep)] for name, x in self.arc_data.items()}
        return self._with_arcs(rows[keep], cols[keep], values, data=data)

    def _arcs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        values = None if self.weights is None else self.weights.cpu().numpy()
        return self.rows.cpu().numpy(), self.indices.cpu().numpy(), values

    def _with_arcs(
        self,
        rows: np.ndarray,
        cols: np.ndarray,
        values: np.ndarray | None,
        merge: np.ufunc = np.add,
        data: dict[str, Tensor] | None = None,
    ) -> Graph:
        """The same vertices with these arcs, which carry `data`; by default the own, over and over again."""
        found = compress(rows, cols, values, self.num_nodes, merge, track=bool(self.arc_data))
        if found.kept is not None and data is None:
            found.kept.remainder_(max(1, self.num_arcs))
        carried = _kept(self.arc_data if data is None else data, found.kept)
        indptr, indices, weights, _ = found
        return self.replace(indptr=indptr, indices=indices, weights=weights, arc_data=carried)

    # Validation

    def _coerce(self) -> None:
        """Bring tensors to the types of the class docstring where that loses nothing."""

        def put(key: str, value: Tensor) -> None:
            object.__setattr__(self, key, value)

        for of, key in NAMED.items():
            object.__setattr__(self, key, coerced(getattr(self, key), of))
        for key in _TENSORS:
            value = getattr(self, key)
            if value is not None and not isinstance(value, Tensor):
                put(key, torch.as_tensor(value, device="cpu"))
        for key in ("indptr", "indices", "ids", *PAIRS):
            value = getattr(self, key)
            if value is not None and (
                value.is_floating_point() or value.is_complex() or value.dtype == torch.bool
            ):
                raise UserError(f"{key} are {_type_name(value)}. Give whole numbers.")
        if self.indptr.dtype != torch.int64:
            put("indptr", self.indptr.long())
        index_type = index_dtype(self.indptr.numel() - 1)
        if self.indices.dtype != index_type:
            if self.indices.numel() and int(self.indices.max()) > torch.iinfo(index_type).max:
                raise UserError(out_of_range(int(self.indices.max()), self.indptr.numel() - 1))
            put("indices", self.indices.to(index_type))
        for key in ("weights", "features"):
            value = getattr(self, key)
            if value is not None and value.dtype not in (torch.float32, torch.float64):
                if value.is_complex():
                    raise UserError(f"{key} are complex. Give real numbers.")
                put(key, value.float())
        labels = self.labels
        if labels is not None and labels.dtype != torch.int64 and labels.dim() == 1:
            if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
                raise UserError(
                    f"labels are {_type_name(labels)}. Give whole numbers, 0 to classes-1, or -1."
                )
            put("labels", labels.long())
        for key in ("labels", *MASKS):  # 0 and 1 may stand for False and True
            value = getattr(self, key)
            flags = value is not None and value.dim() == (2 if key == "labels" else 1)
            if flags and value.dtype != torch.bool and bool(((value == 0) | (value == 1)).all()):
                put(key, value.bool())
        for key in ("ids", *PAIRS):
            value = getattr(self, key)
            if value is not None and value.dtype != torch.int64:
                put(key, value.long())

    def validate(self, trusted: frozenset[str] = frozenset()) -> None:
        """Raise a `UserError` that names the first bad value; silent where all is well.

        Tensors named in `trusted` were checked before: of these only the shapes are looked at again.

        >>> Graph.from_arcs([0], [1], features=torch.tensor([[1.0], [float("nan")]]))
        Traceback (most recent call last):
            ...
        weft.errors.UserError: feature 0 of vertex 1 is nan. Replace it by a finite number.
        """
        if not {"indptr", "indices"} <= trusted:
            check_csr(self.indptr, self.indices)
        n, nnz = self.num_nodes, self.num_arcs
        if self.weights is not None:
            if self.weights.shape != (nnz,):
                raise UserError(f"{_shape(self.weights)} weights for {nnz} arcs. Give one weight an arc.")
            if "weights" not in trusted and (at := _first_wild(self.weights)) is not None:
                raise UserError(f"weight {at} is {float(self.weights[at])}. Replace it by a finite number.")
        if self.features is not None:
            self._validate_features(n, "features" in trusted)
        if self.labels is not None:
            self._validate_labels(n, "labels" in trusted)
        self._validate_masks(n, trusted)
        if self.ids is not None and self.ids.shape != (n,):
            raise UserError(f"{_shape(self.ids)} ids for {n} vertices. Give one id a vertex.")
        for key in PAIRS:
            if (pairs := getattr(self, key)) is not None and key not in trusted:
                check_pairs(pairs, n, key)
        for (of, key), count in zip(NAMED.items(), (nnz, n), strict=True):
            for name, x in getattr(self, key).items():
                check_array(name, x, count, of, f"{key}.{name}" in trusted)

    def _validate_features(self, n: int, trusted: bool) -> None:
        x = self.features
        assert x is not None
        if x.dim() != 2 or len(x) != n:
            raise UserError(
                f"features have shape {_shape(x)}; {n} vertices need {n}xF. Give one row a vertex."
            )
        if not trusted and (at := _first_wild(x)) is not None:
            vertex, column = divmod(at, x.shape[1])
            value = float(x[vertex, column])
            raise UserError(f"feature {column} of vertex {vertex} is {value}. Replace it by a finite number.")

    def _validate_labels(self, n: int, trusted: bool) -> None:
        y = self.labels
        assert y is not None
        if y.dim() not in (1, 2) or len(y) != n:
            raise UserError(
                f"labels have shape {_shape(y)}; {n} vertices need {n} of them. Give one a vertex."
            )
        if y.dim() == 2:
            if y.dtype != torch.bool:
                raise UserError(
                    f"labels of shape {_shape(y)} are {_type_name(y)}; many labels a vertex need bool."
                )
            if self.num_classes and self.num_classes != y.shape[1]:
                raise UserError(
                    f"labels have {y.shape[1]} columns for {self.num_classes} classes. Make them equal."
                )
        elif not trusted and n:
            lo, hi = (int(v) for v in torch.aminmax(y))
            classes = self.num_classes or hi + 1
            if lo < -1 or hi >= classes:
                at = int(torch.nonzero((y < -1) | (y >= classes))[0])
                raise UserError(
                    f"label {int(y[at])} of vertex {at} is outside the classes 0 to {classes - 1}. "
                    "Correct it, or use -1 for unlabelled."
                )

    def _validate_masks(self, n: int, trusted: frozenset[str]) -> None:
        masks = {key: m for key in MASKS if (m := getattr(self, key)) is not None}
        for key, mask in masks.items():
            if mask.dtype != torch.bool or mask.shape != (n,):
                raise UserError(
                    f"{key} is {_shape(mask)} {_type_name(mask)}; it must be {n} bool. Give one a vertex."
                )
        if trusted.issuperset(masks):
            return
        for (first, a), (second, b) in itertools.combinations(masks.items(), 2):
            if bool((both := a & b).any()):
                at = int(torch.nonzero(both)[0])
                raise UserError(f"vertex {at} is in {first} and in {second}. Put each vertex into one mask.")


def check_pairs(pairs: Tensor, n: int, name: str = "pairs") -> None:
    """Check that pairs are [m, 2] and name vertices of the graph.

    >>> check_pairs(torch.tensor([[0, 7]]), 5)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: pairs: vertex id 7 is out of range for 5 vertices (0 to 4). Correct the id.
    """
    if pairs.dim() != 2 or pairs.shape[1] != 2:
        raise UserError(f"{name} have shape {_shape(pairs)}. Give two vertices a pair.")
    if pairs.numel():
        lo, hi = (int(v) for v in torch.aminmax(pairs))
        if lo < 0 or hi >= n:
            raise UserError(f"{name}: {out_of_range(lo if lo < 0 else hi, n)}")


def _as_weights(weights: Any, count: int) -> np.ndarray:
    array = weights.detach().cpu().numpy() if isinstance(weights, Tensor) else np.asarray(weights)
    if array.dtype.kind not in "fiub":
        raise UserError(f"weights are {array.dtype}. Give real numbers.")
    if isinstance(weights, list) or array.dtype not in (np.float32, np.float64):
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which Graph refuses
            array = array.astype(np.float32)
    if array.shape != (count,):
        raise UserError(
            f"{'x'.join(map(str, array.shape))} weights for {count} arcs. Give one weight an arc."
        )
    return array


def _count_classes(labels: Tensor) -> int:
    if labels.dim() == 2:
        return labels.shape[1]
    return int(labels.max()) + 1 if labels.numel() else 0


def _first_wild(x: Tensor) -> int | None:
    """Flat position of the first NaN or infinity; None where there is none."""
    if not x.numel():
        return None
    lo, hi = torch.aminmax(x)  # a NaN anywhere comes out as NaN, and nothing of x's size is allocated
    if bool(torch.isfinite(lo) & torch.isfinite(hi)):
        return None
    return int(torch.nonzero(~torch.isfinite(x).flatten())[0])


def _shape(x: Tensor) -> str:
    return "x".join(map(str, x.shape)) or "one number"


def _type_name(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _kept(data: Mapping[str, Tensor], kept: Tensor | None) -> dict[str, Tensor]:
    """What the arcs carry that were kept of those given."""
    return {} if kept is None else {name: x[kept.to(x.device)] for name, x in data.items()}
