"""From a graph and a config to trained weights."""

from .config import DataConfig, LinkConfig, RunConfig, TrainConfig
from .link import LinkTrainer
from .run import RunFolder
from .tasks import make_trainer
from .trainer import Result, Trainer

__all__ = [
    "DataConfig",
    "LinkConfig",
    "LinkTrainer",
    "Result",
    "RunConfig",
    "RunFolder",
    "TrainConfig",
    "Trainer",
    "make_trainer",
]
