"""Any PyG module and any loop, on ranks: tensors that know which rows of the whole graph they are."""

from .call import Refused
from .fast import accelerate, explain
from .job import Job, join, ranks

__all__ = ["Job", "Refused", "accelerate", "explain", "join", "ranks"]
