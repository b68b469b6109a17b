"""Layers and models as equations; no ranks in here."""

from .adjacency import Adjacency, Move
from .decoders import DECODERS, Decoder, build_decoder
from .layers import GCNLayer, GINLayer, SAGELayer, SGCLayer
from .models import MODELS, Model, ModelConfig, Noise, build, check_model

__all__ = [
    "DECODERS",
    "MODELS",
    "Adjacency",
    "Decoder",
    "GCNLayer",
    "GINLayer",
    "Model",
    "ModelConfig",
    "Move",
    "Noise",
    "SAGELayer",
    "SGCLayer",
    "build",
    "build_decoder",
    "check_model",
]
