"""The catalogue: one small file a family."""

from models.scores.base import Score

from .combined import PluginBb, Sirc
from .ctm import Ctm, CtmMean
from .dice import Dice
from .energy import Energy
from .entropies import Collision, Entropy, Gen, Gini, Guessing, Renyi
from .fdbd import Fdbd
from .gaussian import Mahalanobis, RelativeMahalanobis
from .gradnorm import GradNorm
from .klm import Klm
from .neco import Neco
from .neighbours import Knn, NnGuide
from .openmax import OpenMax
from .pnml import Pnml
from .residual import Residual, Vim
from .shaping import Ash, ReAct, Scale
from .softmax import Margin, MaxLogit, Msp, PNorm
from .subspace import Kpca, Pca

CATALOGUE: tuple[type[Score], ...] = (
    Msp,
    Margin,
    MaxLogit,
    Energy,
    Entropy,
    Collision,
    Gini,
    Renyi,
    Guessing,
    Gen,
    PNorm,
    Klm,
    OpenMax,
    ReAct,
    Dice,
    Ash,
    Scale,
    GradNorm,
    Mahalanobis,
    RelativeMahalanobis,
    Knn,
    NnGuide,
    Vim,
    Residual,
    Fdbd,
    Ctm,
    CtmMean,
    Neco,
    Pca,
    Kpca,
    Pnml,
    Sirc,
    PluginBb,
)
