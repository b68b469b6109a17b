"""Files larger than memory, piece by piece, into a store."""

from weft.graph.stream.convert import Done, Options, convert, convert_inputs
from weft.graph.stream.drawn import KINDS, Drawn, write_arcs
from weft.graph.stream.inputs import streams
from weft.graph.stream.plan import parse_size

__all__ = [
    "KINDS", "Done", "Drawn", "Options", "convert", "convert_inputs", "parse_size", "streams", "write_arcs",
]  # fmt: skip
