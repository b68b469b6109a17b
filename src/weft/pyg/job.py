"""The front door: your own model and your own loop, on ranks.

import weft

with weft.ranks() as job:
    data = job.share(data)
    model = job.wrap(model)
    ...                        # an ordinary loop
    out = job.collect(out)
"""

from __future__ import annotations

import atexit
import contextlib
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..comm import Communicator, connect
from ..errors import UserError
from ..minibatch import parse_bytes
from ..parallel import Operator, Rows, collect_by_number
from ..train.config import ParallelConfig
from .call import Refused
from .fast import install
from .layerwise import layerwise
from .matrix import Matrix
from .mode import Alone, Sharing
from .rowwise import by_row, of_weft
from .share import by_default, share, shared_of, whole
from .space import Root, set_tag, tag_of


class Job:
    """The ranks that run this script, and what they share.

    comm   their communicator;   rank, size   which of them this is, and how many there are
    """

    def __init__(self, comm: Communicator, seed: int):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self._seed = seed
        self.sharing = Sharing(comm, seed) if comm.size > 1 else Alone(seed)

    def share(
        self, data: Any, partition: str = "block", epsilon: float = 0.03, order: str = "none",
        strategy: str = "halo", grid: str = "", replication: int = 0, exchange: str = "",
    ) -> Any:  # fmt: skip
        """This rank's share of a graph, as a PyG `Data`: its vertices' rows, and the arcs that end there.

            data       a PyG `Data`, the same on every rank; or a weft `Graph`; or the path of a store
            partition  block, random, metis, hypergraph, stream or a file of parts, as in `weft partition`
            strategy   halo, 1d, 2d, feature, … as in `weft train`, and so `grid`, `replication`, `exchange`

        On every grid a rank has the complete rows of its own vertices, n/P of them: ranks of a feature line
        share the output rows. Layers that go through weft's kernels compute A's products on the grid, as
        weft's own do: there the ranks of a feature line hold the same arcs and take some columns each. Any
        other module computes the rows of its rank, and fetches those of neighbours.

        Attributes of vertices and arcs are cut, what else there is stays. Tensors of the share know what
        their rows are: modules and losses give what they would give in one process. One rank has all of the
        graph, in its own order, and its tensors are torch's.
        """
        with torch._C.DisableTorchFunction():
            cut = ParallelConfig(
                partition=partition, epsilon=epsilon, order=order, strategy=strategy, grid=grid,
                replication=replication, exchange=exchange,
            )  # fmt: skip
            return share(data, self.comm, cut, self._seed) if self.size > 1 else whole(data, self.comm, cut)

    def operator(
        self, data: Any, how: str = "gcn", arc_data: Collection[str] = (), dtype: torch.dtype | None = None
    ) -> Operator:
        """A of a shared weft graph or store, on its grid, for weft's own layers: `model(A, data.x)`.

            how        its normalisation: gcn, mean, none, loops; `model.adjacency` names a model's
            arc_data   names of what arcs carry and layers read
            dtype      of its numbers; by default that of data.x, else torch's default

        It is the operator that `Trainer` trains on: the same words move, whatever the grid.

        >>> import weft
        >>> with ranks() as job:
        ...     data = job.share(weft.load("karate"))
        ...     job.operator(data, "mean").rows.numel()
        34
        """
        x = getattr(data, "x", None)
        kind = torch.get_default_dtype() if x is None or not x.is_floating_point() else x.dtype
        with torch._C.DisableTorchFunction():
            device = data.edge_index.device if hasattr(data, "edge_index") else "cpu"
            return shared_of(data).operator(how, dtype or kind, device, arc_data)

    def wrap(self, model: nn.Module, fast: bool = True) -> nn.Module:
        """The model itself, with rank 0's weights on every rank; `backward` sums their gradients.

        fast   PyG's layers that weft's kernels can do go through them (`weft.explain(model)` says which)
        """
        if isinstance(self.sharing, Sharing):
            self._share_weights(model, self.sharing)
        if fast and "torch_geometric" in sys.modules:  # else it has no such layers
            install(model, self.sharing.chance, quiet=True)
        return model

    def _share_weights(self, model: nn.Module, sharing: Sharing) -> None:
        with torch._C.DisableTorchFunction():
            self._same_weights(model)
        known = {id(p) for p in sharing.parameters}
        sharing.parameters += [p for p in model.parameters() if id(p) not in known]
        for p in model.parameters():
            p.__dict__["_weft_same"] = True
        if "torch_geometric" in sys.modules:
            by_row(model)
        inside = of_weft(model)
        for path, module in model.named_modules():
            if module not in inside:
                self._follow(module, path, sharing)

    def _same_weights(self, model: nn.Module) -> None:
        for name, p in model.named_parameters():
            if isinstance(p, nn.parameter.UninitializedParameter):
                raise UserError(f"{name} has no shape yet. Give the model its in_channels in place of -1.")
        state = [*model.parameters(), *model.buffers()]
        for dtype in dict.fromkeys(t.dtype for t in state):
            mine = [t for t in state if t.dtype == dtype]
            flat = torch.cat([t.detach().reshape(-1) for t in mine])
            sizes = self.comm.all_gather_json(flat.numel())
            if len(set(sizes)) > 1:
                raise UserError(
                    f"ranks wrap different models: {sizes} numbers. Build the same on every rank."
                )
            flat = self.comm.broadcast(flat, 0, phase="weights")
            with torch.no_grad():
                for t, part in zip(mine, flat.split([t.numel() for t in mine]), strict=True):
                    t.copy_(part.view(t.shape))

    def _follow(self, module: nn.Module, path: str, sharing: Sharing) -> None:
        """Know which module runs; and notice one whose result has lost its rows."""
        kind = type(module).__name__

        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            sharing.enter(path, kind)
            if sharing.going_back:
                raise Refused(
                    f"{kind} ({path}) is run again on the way back, by torch.utils.checkpoint. "
                    "This is not there on ranks: leave it out."
                )
            self._same_type(module, path, (*args, *kwargs.values()))

        def after(module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
            where = sharing.where()
            sharing.leave()
            given = [t for t in (*args, *kwargs.values()) if tag_of(t) is not None]
            if not given or not isinstance(out, Tensor) or tag_of(out) is not None:
                return
            sizes = {tag.space.size for t in given if (tag := tag_of(t)) is not None}
            with torch._C.DisableTorchFunction():
                if out.dim() and out.grad_fn is not None and out.shape[0] in sizes - {0, 1}:
                    raise UserError(
                        f"{where}its result of {out.shape[0]} rows was made where weft cannot see it. "
                        "Write it with torch's functions."
                    )

        for hook in (before, after):
            hook.__dict__["weft"] = True  # a layer with no other hooks is as PyG made it
        module.register_forward_pre_hook(before, with_kwargs=True)
        module.register_forward_hook(after, with_kwargs=True, always_call=True)

    @staticmethod
    def _same_type(module: nn.Module, path: str, given: Sequence[Any]) -> None:
        """One line for a model that was moved after its data, or before."""
        weight = next(module.parameters(recurse=False), None)
        for x in given if weight is not None else ():
            if tag_of(x) is None or not x.is_floating_point():
                continue
            assert weight is not None
            if (x.dtype, x.device) != (weight.dtype, weight.device):
                raise UserError(
                    f"{type(module).__name__} ({path}): its weights are {weight.dtype} on {weight.device}, "
                    f"its rows {x.dtype} on {x.device}. Move both with .to()."
                )

    def layerwise(
        self, layers: Sequence[Callable[..., Tensor]], data: Any, memory: str | int = "1GB"
    ) -> Tensor:
        """Rows of the last layer for this rank's vertices, computed layer by layer in bounded memory.

            layers   [(x, edge_index, …) → rows], such as `lambda x, edge_index: conv(x, edge_index).relu()`;
                     further arguments are data's of the same name, one row an arc
            memory   what a step may take on a rank, beside the arcs and weights: "500MB", or bytes

        Rows lie on disk (TMPDIR), and some vertices are computed at a time. Layers must be in eval(): what
        drops or normalises over a batch would differ from step to step. No gradients.
        """
        limit = parse_bytes(memory, "memory") if isinstance(memory, str) else memory
        if self.size > 1:
            return layerwise(layers, data, limit)
        with torch._C.DisableTorchFunction():
            return set_tag(layerwise(layers, share(data, self.comm, by_default(), self._seed), limit), None)

    def mean(self, losses: Tensor) -> Tensor:
        """The mean over the rows of all ranks, the same on every rank; `losses.mean()` says the same."""
        return losses.mean()

    def collect(self, x: Tensor) -> Tensor:
        """The rows of all ranks, in the order of one process, on every rank; without gradient."""
        tag = tag_of(x)
        if tag is None:
            return x.detach()
        with torch._C.DisableTorchFunction():
            if isinstance(tag, Matrix):
                raise UserError("a sparse matrix cannot be collected. Keep it as it was before job.share.")
            if tag.names is not None:
                raise UserError(
                    "vertex numbers cannot be collected. Keep edge_index as it was before job.share."
                )
            front, space = x.detach().movedim(tag.dim, 0), tag.space
            if isinstance(space, Root) and space.blocks is not None:
                rows = Rows(self.comm, space.blocks).collect(front)
            else:
                rows = collect_by_number(front, space.ids, self.comm)
            return rows.movedim(0, tag.dim)


@contextlib.contextmanager
def ranks(comm: Communicator | None = None, engine: str = "auto", seed: int | None = None) -> Iterator[Job]:
    """Join the ranks that are there: of `weft run`, mpirun, srun or torchrun; without any, be the only one.

    One rank is one process: torch as it is, but for dropout, whose masks are those of any number of ranks.

        seed  of the partition and of dropout; by default torch's, of rank 0

    >>> with ranks() as job:
    ...     job.rank, job.size
    (0, 1)
    """
    comm = connect(engine) if comm is None else comm
    mine = torch.initial_seed() if seed is None else seed
    job = Job(comm, comm.all_gather_json(mine)[0])
    if comm.engine != "threads":  # virtual ranks have one generator among them
        torch.set_rng_state(comm.broadcast(torch.get_rng_state(), 0, phase="weights"))
    with job.sharing:
        yield job


def join(engine: str = "auto", seed: int | None = None) -> Job:
    """`ranks` for a script that is not written as a block: the ranks share until the script ends.

        job = weft.join()
        data = job.share(data)
        model = job.wrap(model)

    Call it once. What is done at the end of the block of `ranks` is done when the process ends.
    """
    if _joined:
        raise UserError("weft.join() was called before in this script. Use the job that it gave.")
    block = ranks(engine=engine, seed=seed)
    job = block.__enter__()
    _joined.append(block)
    atexit.register(block.__exit__, None, None, None)
    return job


_joined: list[contextlib.AbstractContextManager[Job]] = []
"""What `join` entered: it must live as long as the process."""
