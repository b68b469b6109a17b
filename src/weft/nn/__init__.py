"""Layers and models as equations; no ranks in here."""

from .adjacency import Adjacency, Chain, EntryNumbers
from .attention import AGNNLayer, BestaAGNNLayer, GATLayer, VALayer
from .decoders import DECODERS, Decoder, build_decoder
from .layer import Layer, in_halves
from .layers import GCNLayer, GINLayer, SAGELayer, SGCLayer
from .models import Model, Noise
from .ptags import Messages, PTagsLayer
from .registry import MODELS, Entry, ModelConfig, build, check_model, model_hops, model_widths, register

__all__ = [
    "DECODERS",
    "MODELS",
    "AGNNLayer",
    "Adjacency",
    "BestaAGNNLayer",
    "Chain",
    "Decoder",
    "Entry",
    "EntryNumbers",
    "GATLayer",
    "GCNLayer",
    "GINLayer",
    "Layer",
    "Messages",
    "Model",
    "ModelConfig",
    "Noise",
    "PTagsLayer",
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
