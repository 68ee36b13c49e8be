"""Euclidean distances from each row to each row of a table."""

from models.scores.namespace import Array, Namespace


def squared_distances(xp: Namespace, x: Array, table: Array) -> Array:
    """‖x − t_k‖² [B, K], by ‖x‖² − 2 x·t_k + ‖t_k‖²; callers centre what lies far from the origin."""
    cross = xp.matmul_t(x, table)
    return xp.maximum(xp.sum_squares(x, keepdims=True) - cross * 2.0 + xp.sum_squares(table), 0.0)
