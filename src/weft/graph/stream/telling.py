"""Who is told how far a conversion is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Tick = Callable[[str, int, int], None]
"""(stage, how much of it is done, how much it is)."""


class Telling:
    """A tick that hears beforehand what there is to do. `convert` takes any tick, and tells this one more."""

    def expect(self, work: Mapping[str, int]) -> None:
        """Stage → bytes that it reads and writes, about, in the order of the stages; once more where what
        was expected turns out otherwise, and the work begins again."""
        raise NotImplementedError

    def __call__(self, stage: str, done: int, total: int) -> None:
        raise NotImplementedError
