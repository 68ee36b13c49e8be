"""Softmax probabilities without saturation: everything relative to the top class.

With gaps g_k = z_top − z_k ≥ 0 and q_k = exp(−g_k), the sum r = Σ_{k≠top} q_k gives p_top = 1/(1 + r) and
p_k = q_k/(1 + r). No 1 − p is ever formed by subtraction, so a logit gap of 200 still has sixteen digits.
"""

from dataclasses import dataclass

import numpy as np

from models.scores.base import Inputs
from models.scores.namespace import Array, Namespace


@dataclass(frozen=True)
class Odds:
    """Gaps and odds of the classes against the top class."""

    gap: Array
    """g [B, C]"""
    q: Array
    """exp(−g), with 0 in the place of the top class itself"""
    is_top: Array
    rest: Array
    """r [B, 1]"""
    log_norm: Array
    """log(1 + r) = −log p_top [B, 1]"""


def odds(xp: Namespace, x: Inputs) -> Odds:
    """Odds over all classes, in class order."""
    return _odds(xp, x.z, xp.is_top(x.z, x.n_classes))


def sorted_odds(xp: Namespace, x: Inputs) -> Odds:
    """Odds over all classes, most probable first."""
    first = np.arange(x.n_classes) == 0
    return _odds(xp, xp.top(x.z, x.n_classes), xp.constant(first))


def _odds(xp: Namespace, z: Array, is_top: Array) -> Odds:
    gap = xp.max(z, keepdims=True) - z
    q = xp.where(is_top, 0.0, xp.exp(-gap))
    rest = xp.sum(q, keepdims=True)
    return Odds(gap, q, is_top, rest, xp.log1p(rest))


def entropy(xp: Namespace, o: Odds) -> Array:
    """H(p) = Σ p_k (g_k + log(1 + r)) = log(1 + r) + Σ_k q_k g_k / (1 + r), a sum of terms ≥ 0, as [B, 1]."""
    return o.log_norm + xp.sum(o.q * o.gap, keepdims=True) / (o.rest + 1.0)


def log_one_minus(xp: Namespace, o: Odds) -> Array:
    """log(1 − p_k) [B, C]: log(r/(1+r)) for the top class, log((1 + r − q_k)/(1 + r)) for the others."""
    top = xp.log(xp.maximum(o.rest, SMALLEST))
    others = xp.log1p(xp.maximum(o.rest - o.q, 0.0))
    return xp.where(o.is_top, top, others) - o.log_norm


SMALLEST = 5e-324
"""Keeps log r finite for gaps beyond 745, where every odd underflows."""
