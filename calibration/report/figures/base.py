"""A figure with its words."""

from dataclasses import dataclass

import plotly.graph_objects as go


@dataclass(frozen=True)
class Figure:
    """A plotly figure, its place on the page (`key`), and what a reader who does not see it is told."""

    key: str
    title: str
    caption: str
    figure: go.Figure
