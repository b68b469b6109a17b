"""From a graph and a config to trained weights."""

from .config import DataConfig, LinkConfig, RunConfig, Section, TrainConfig
from .result import Result
from .run import RunFolder
from .task import Step, Task
from .tasks import TASKS, TaskEntry
from .trainer import Trainer

__all__ = [
    "TASKS",
    "DataConfig",
    "LinkConfig",
    "Result",
    "RunConfig",
    "RunFolder",
    "Section",
    "Step",
    "Task",
    "TaskEntry",
    "TrainConfig",
    "Trainer",
]
