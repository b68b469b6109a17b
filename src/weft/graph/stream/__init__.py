"""Files larger than memory, piece by piece, into a store."""

from weft.graph.stream.convert import Done, Options, convert
from weft.graph.stream.inputs import streams
from weft.graph.stream.plan import parse_size

__all__ = ["Done", "Options", "convert", "parse_size", "streams"]
