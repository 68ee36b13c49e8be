"""Scoring functions: one definition each, executed by numpy in float64 and emitted as ONNX nodes."""

from .base import Inputs, Score, ScoreParams, Theta
from .catalogue import get_score, possible_scores, registry
from .fitdata import FitBatch, FitData
from .fitted import FittedScore, fit_score
from .onnx_namespace import OnnxNamespace
from .spec import ScoreSpec, WrapperSpec, parse_spec

__all__ = [
    "FitBatch",
    "FitData",
    "FittedScore",
    "Inputs",
    "OnnxNamespace",
    "Score",
    "ScoreParams",
    "ScoreSpec",
    "Theta",
    "WrapperSpec",
    "fit_score",
    "get_score",
    "parse_spec",
    "possible_scores",
    "registry",
]
