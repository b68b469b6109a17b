"""Mini-batches: sampled neighbourhoods, two ways to feed the first layer, a pipeline, copies by budget."""

from .ahead import PullAhead, Schedule, parse_room, plan_fetches
from .block import Batch, Block
from .cache import Copies, parse_bytes, plan_copies
from .feeds import Features, Feed, Flight, Objective, Pull, PushPull
from .pipeline import STALENESS, drive
from .prefetch import Ahead
from .reads import sampled_reads, seed_reads
from .sampler import Sampler, Upto, fanouts_for, parse_fanouts
from .subgraph import KINDS, Share, Subgraphs
from .topology import Reads, Topology, reads_of

__all__ = [
    "KINDS",
    "STALENESS",
    "Ahead",
    "Batch",
    "Block",
    "Copies",
    "Features",
    "Feed",
    "Flight",
    "Objective",
    "Pull",
    "PullAhead",
    "PushPull",
    "Reads",
    "Sampler",
    "Schedule",
    "Share",
    "Subgraphs",
    "Topology",
    "Upto",
    "drive",
    "fanouts_for",
    "parse_bytes",
    "parse_fanouts",
    "parse_room",
    "plan_copies",
    "plan_fetches",
    "reads_of",
    "sampled_reads",
    "seed_reads",
]
