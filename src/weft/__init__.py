"""weft trains graph neural networks on graphs too big or too slow for one process."""

__version__ = "0.1.0"
