"""Mini-batches: sampled neighbourhoods, two ways to feed the first layer, a pipeline, copies by budget."""

from .block import Batch, Block
from .cache import Copies, parse_bytes, plan_copies
from .feeds import Feed, Flight, Pull, PushPull
from .pipeline import STALENESS, drive
from .sampler import Sampler, Upto, parse_fanouts, sampled_arcs
from .stack import Stack, fanouts_for
from .tags import Hop, Tags, register, tags_of
from .topology import Reads, Topology

__all__ = [
    "STALENESS",
    "Batch",
    "Block",
    "Copies",
    "Feed",
    "Flight",
    "Hop",
    "Pull",
    "PushPull",
    "Reads",
    "Sampler",
    "Stack",
    "Tags",
    "Topology",
    "Upto",
    "drive",
    "fanouts_for",
    "parse_bytes",
    "parse_fanouts",
    "plan_copies",
    "register",
    "sampled_arcs",
    "tags_of",
]
