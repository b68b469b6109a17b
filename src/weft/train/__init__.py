"""From a graph and a config to trained weights."""

from .config import DataConfig, RunConfig, TrainConfig
from .run import RunFolder
from .trainer import Result, Trainer

__all__ = ["DataConfig", "Result", "RunConfig", "RunFolder", "TrainConfig", "Trainer"]
