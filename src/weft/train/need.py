"""What training holds at least, on one machine of those that share the work: told before anything is made."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph.guard import check_fits


@dataclass(frozen=True)
class Need:
    """A lower bound of the bytes that a run holds."""

    shared: int
    """Rows of vertices, on all ranks together: each has its own."""
    each: int
    """What every rank has whole: the weights and their gradients."""
    what: str
    """The model and the graph, for the message."""

    def on_host(self, ranks: int, hosts: int) -> int:
        """Bytes on the fullest of `hosts` machines.

        >>> Need(shared=1200, each=10, what="").on_host(ranks=6, hosts=3)
        420
        """
        here = -(-ranks // hosts)
        return -(-self.shared * here // ranks) + here * self.each

    def check(self, ranks: int, hosts: int) -> None:
        """Refuse what this machine has no room for, where it is one of `hosts`.

        >>> Need(shared=1 << 50, each=0, what="a model of 2 layers").check(ranks=8, hosts=4)
        Traceback (most recent call last):
            ...
        weft.errors.UserError: a model of 2 layers, on each of 4 hosts: 281,475.0 GB needed, more than ...
        """
        where = f", on each of {hosts} hosts" if hosts > 1 else ""
        remedy = "Use more hosts (--hosts FILE), fewer or narrower layers, or a bigger machine."
        check_fits(self.on_host(ranks, hosts), self.what + where, remedy=remedy)
