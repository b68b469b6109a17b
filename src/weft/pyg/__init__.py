"""Any PyG module and any loop, on ranks: tensors that know which rows of the whole graph they are."""

from .call import Refused
from .fast import accelerate, explain
from .job import Job, ranks

__all__ = ["Job", "Refused", "accelerate", "explain", "ranks"]
