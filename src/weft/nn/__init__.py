"""Layers and models as equations; no ranks in here."""

from .adjacency import Adjacency, Move
from .layers import GCNLayer, GINLayer, SAGELayer, SGCLayer
from .models import MODELS, Model, ModelConfig, Noise, build, check_model

__all__ = [
    "MODELS",
    "Adjacency",
    "GCNLayer",
    "GINLayer",
    "Model",
    "ModelConfig",
    "Move",
    "Noise",
    "SAGELayer",
    "SGCLayer",
    "build",
    "check_model",
]
