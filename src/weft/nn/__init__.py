"""Layers and models as equations; no ranks in here."""

from .adjacency import Adjacency, Chain, EntryNumbers
from .attention import AGNNLayer, GATLayer, VALayer
from .decoders import DECODERS, Decoder, build_decoder
from .layer import Layer, in_halves
from .layers import GCNLayer, GINLayer, SAGELayer, SGCLayer
from .models import Model, Noise
from .registry import MODELS, Entry, ModelConfig, build, check_model, model_hops, model_widths, register

__all__ = [
    "DECODERS",
    "MODELS",
    "AGNNLayer",
    "Adjacency",
    "Chain",
    "Decoder",
    "Entry",
    "EntryNumbers",
    "GATLayer",
    "GCNLayer",
    "GINLayer",
    "Layer",
    "Model",
    "ModelConfig",
    "Noise",
    "SAGELayer",
    "SGCLayer",
    "VALayer",
    "build",
    "build_decoder",
    "check_model",
    "in_halves",
    "model_hops",
    "model_widths",
    "register",
]
