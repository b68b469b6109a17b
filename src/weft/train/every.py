"""How often something is done: by epochs, by batches, by the clock."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UserError

_UNITS = {"epoch": "epochs", "batch": "batches", "batches": "batches", "epochs": "epochs", "": "epochs"}
_SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hour": 3600.0}


@dataclass(frozen=True)
class Every:
    """How often: a number of epochs, of batches, of seconds, or never.

    >>> Every.parse("5"), Every.parse("500 batches"), Every.parse("10min").seconds
    (Every(unit='epochs', number=5), Every(unit='batches', number=500), 600.0)
    """

    unit: str
    number: float

    @classmethod
    def parse(cls, text: str, setting: str = "every", batches: bool = True) -> Every:
        """From what the user wrote for a setting; a UserError where it says nothing."""
        words = text.strip().lower()
        if words in ("never", "0"):
            return cls("never", 0)
        cut = next((i for i, c in enumerate(words) if not (c.isdigit() or c == ".")), len(words))
        unit = words[cut:].strip()
        try:
            number = float(words[:cut])
        except ValueError:
            number = 0.0
        known = unit in _UNITS and (batches or _UNITS[unit] == "epochs")
        if known and 1 <= number < 2**53 and number == int(number):
            return cls(_UNITS[unit], int(number))
        if unit in _SECONDS and 0 < number < 2**53:
            return cls("seconds", number * _SECONDS[unit])
        kinds, some = (", batches", "500batches, ") if batches else ("", "")
        raise UserError(
            f"{setting} {text!r} is no number of epochs{kinds} or minutes. Use 5, {some}10min or never."
        )

    @property
    def seconds(self) -> float:
        return self.number if self.unit == "seconds" else float("inf")
