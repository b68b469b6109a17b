"""Layers and models as equations; no ranks in here."""

from .adjacency import Adjacency, Move, Tally
from .attention import AGNNLayer, GATLayer, VALayer
from .decoders import DECODERS, Decoder, build_decoder
from .layers import GCNLayer, GINLayer, SAGELayer, SGCLayer
from .models import MODELS, Model, ModelConfig, Noise, build, check_model

__all__ = [
    "DECODERS",
    "MODELS",
    "AGNNLayer",
    "Adjacency",
    "Decoder",
    "GATLayer",
    "GCNLayer",
    "GINLayer",
    "Model",
    "ModelConfig",
    "Move",
    "Noise",
    "SAGELayer",
    "SGCLayer",
    "Tally",
    "VALayer",
    "build",
    "build_decoder",
    "check_model",
]
