"""Every registered score keeps the contract: a score gets these tests by existing."""

import pytest

from models.scores import registry
from models.scores.checks import CHECKS

VARIANTS = [
    "energy:T=2.0",
    "pnorm:p=2,centre=false",
    "renyi:top=3",
    "gen:top=3,gamma=0.5",
    "ash:variant=p",
    "ash:variant=b",
    "openmax:alpha=2",
    "mahalanobis:shrinkage=0.1",
    "knn:k=1",
    "neco:times_logit=true",
    "sirc:s1=entropy,s2=residual",
    "plugin_bb:s_ood=residual",
    "energy+temperature=1.7",
    "react+temperature=0.5",
    "nnguide:k=5+project=global+temperature=2.0",
    "energy+project=global",
    "energy+project=class",
    "msp+project=class_pred",
    "gen+project=class_avg",
    "ctm+project=class",
    "ctm_mean+project=class",
    "ctm_mean+project=global",
    "mahalanobis+project=class_pred",
    "knn:k=5+project=class_pred",
    "fdbd+project=class_avg",
    "pca+project=class",
    "pca+project=class_pred",
    "kpca+project=class",
    "kpca+project=class_pred",
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("spec", [*registry(), *VARIANTS])
def test_contract(spec, check):
    check(spec)
