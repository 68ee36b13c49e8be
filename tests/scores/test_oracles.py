"""Scores against independent implementations: autograd, scikit-learn, scipy, brute force, plain formulas."""

import numpy as np
import pytest

from models.scores import FitData, fit_score
from models.scores.checks import case
from models.scores.families.weibull import fit_weibull
from models.signals import Signals

CASE = case(classes=5, dim=12, fit=200, rows=60, seed=7)
H = np.array(CASE.fit.features, dtype=np.float64)
Z = np.array(CASE.fit.logits, dtype=np.float64)
X = np.array(CASE.rows.features, dtype=np.float64)
ZX = np.array(CASE.rows.logits, dtype=np.float64)
W, B, Y = CASE.head.weight, CASE.head.bias, CASE.labels


def score(spec):
    return CASE.fitted(spec).compute(CASE.rows)


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def energy(z):
    return np.log(np.exp(z).sum(axis=1))


def test_gradnorm_is_the_autograd_gradient_norm():
    torch = pytest.importorskip("torch")
    for i, expected in enumerate(score("gradnorm")):
        weight = torch.tensor(W, requires_grad=True)
        # The features alone decide the gradient's other factor, so the bias makes the logits agree with the case's.
        logits = torch.tensor(X[i]) @ weight.T + torch.tensor(ZX[i] - X[i] @ W.T)
        uniform_cross_entropy = -torch.log_softmax(logits, dim=0).mean()
        uniform_cross_entropy.backward()
        assert weight.grad.abs().sum().item() == pytest.approx(expected, rel=1e-9)


def test_mahalanobis_is_scikit_learns():
    from sklearn.covariance import EmpiricalCovariance

    means = np.stack([H[c == Y].mean(axis=0) for c in range(5)])
    shared = EmpiricalCovariance(assume_centered=True).fit(H - means[Y])
    expected = -np.min([shared.mahalanobis(X - mean) for mean in means], axis=0)
    np.testing.assert_allclose(score("mahalanobis:shrinkage=0.0"), expected, rtol=1e-7)


def test_shrinkage_is_scikit_learns_oas():
    from sklearn.covariance import OAS

    means = np.stack([H[c == Y].mean(axis=0) for c in range(5)])
    theirs = OAS(assume_centered=True).fit(H - means[Y])
    fitted = CASE.fitted("mahalanobis")
    assert fitted.params.shrinkage == pytest.approx(theirs.shrinkage_, rel=1e-9)
    expected = -np.min([theirs.mahalanobis(X - mean) for mean in means], axis=0)
    np.testing.assert_allclose(fitted.compute(CASE.rows), expected, rtol=1e-7)


def test_relative_mahalanobis_subtracts_the_background():
    from sklearn.covariance import EmpiricalCovariance

    background = EmpiricalCovariance().fit(H)
    expected = score("mahalanobis:shrinkage=0.0") + background.mahalanobis(X)
    np.testing.assert_allclose(score("relative_mahalanobis:shrinkage=0.0"), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("k", [1, 7, 200])
def test_knn_is_brute_force(k):
    bank = H / np.linalg.norm(H, axis=1, keepdims=True)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    distances = np.sort(np.linalg.norm(unit[:, None] - bank[None], axis=2), axis=1)
    np.testing.assert_allclose(score(f"knn:k={k}"), -distances[:, k - 1], rtol=1e-6)


def test_nnguide_is_brute_force():
    bank = H / np.linalg.norm(H, axis=1, keepdims=True)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    guided = np.sort((unit @ bank.T) * energy(Z), axis=1)[:, ::-1]
    np.testing.assert_allclose(score("nnguide:k=9"), energy(ZX) * guided[:, :9].mean(axis=1), rtol=1e-6)


@pytest.mark.parametrize(("shape", "scale", "seed"), [(0.7, 3.0, 0), (2.0, 0.01, 1), (9.0, 250.0, 2)])
def test_weibull_is_scipys(shape, scale, seed):
    from scipy.stats import weibull_min

    sample = weibull_min.rvs(shape, scale=scale, size=50, random_state=seed)
    c, _, s = weibull_min.fit(sample, floc=0)
    assert fit_weibull(sample) == pytest.approx((c, s), rel=1e-4)


def test_openmax_follows_the_algorithm():
    from scipy.stats import weibull_min

    right = Z.argmax(axis=1) == Y
    expected = []
    for h, z in zip(X, ZX, strict=True):
        known, unknown = z.copy(), 0.0
        for rank, c in enumerate(np.argsort(-z)[:3]):
            rows = H[right & (c == Y)]
            distances = np.linalg.norm(rows - rows.mean(axis=0), axis=1)
            shape, _, scale = weibull_min.fit(np.sort(distances)[-20:], floc=0)
            weight = (3 - rank) / 3 * weibull_min.cdf(np.linalg.norm(h - rows.mean(axis=0)), shape, scale=scale)
            known[c] = z[c] * (1 - weight)
            unknown += z[c] * weight
        share = np.exp(unknown) / (np.exp(known).sum() + np.exp(unknown))
        expected.append(np.log((1 - share) / share))
    np.testing.assert_allclose(score("openmax:tail=20,alpha=3"), expected, rtol=1e-3, atol=1e-3)


def test_vim_is_the_virtual_logit():
    origin = -np.linalg.pinv(W) @ B
    _, vectors = np.linalg.eigh((H - origin).T @ (H - origin))
    residual = lambda h: np.linalg.norm((h - origin) @ vectors[:, : 12 - 4], axis=1)  # noqa: E731
    alpha = Z.max(axis=1).mean() / residual(H).mean()
    virtual = alpha * residual(X)
    probability = np.exp(virtual) / (np.exp(ZX).sum(axis=1) + np.exp(virtual))
    np.testing.assert_allclose(score("vim:dim=4"), np.log(1 / probability - 1), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(score("residual:dim=4"), -residual(X), rtol=1e-6)


def test_fdbd_measures_each_boundary():
    expected = []
    for h, z in zip(X, ZX, strict=True):
        m = z.argmax()
        distances = [(z[m] - z[k]) / np.linalg.norm(W[m] - W[k]) for k in range(5) if k != m]
        expected.append(np.mean(distances) / np.linalg.norm(h - H.mean(axis=0)))
    np.testing.assert_allclose(score("fdbd"), expected, rtol=1e-9)


def test_klm_is_the_smallest_divergence():
    from scipy.stats import entropy

    predicted = Z.argmax(axis=1)
    templates = [softmax(Z[predicted == k]).mean(axis=0) for k in range(5) if (predicted == k).any()]
    expected = [-min(entropy(p, d) for d in templates) for p in softmax(ZX)]
    np.testing.assert_allclose(score("klm"), expected, rtol=1e-8, atol=1e-12)


def test_reshaped_energies():
    logits = lambda h, w=W: h @ w.T + B  # noqa: E731
    clipped = np.minimum(X, np.quantile(H, 0.8))
    np.testing.assert_allclose(score("react:quantile=0.8"), energy(logits(clipped)), rtol=1e-9)

    contribution = H.mean(axis=0) * W
    kept = np.where(contribution >= np.quantile(contribution, 0.6), W, 0.0)
    np.testing.assert_allclose(score("dice:sparsity=0.6"), energy(logits(X, kept)), rtol=1e-9)

    keep = 12 - round(12 * 0.5)
    pruned = np.where(np.sort(X, axis=1)[:, [-keep]] <= X, X, 0.0)
    stretch = np.exp(X.sum(axis=1) / np.sort(X, axis=1)[:, -keep:].sum(axis=1))[:, None]
    np.testing.assert_allclose(score("ash:percentile=0.5,variant=p"), energy(logits(pruned)), rtol=1e-9)
    np.testing.assert_allclose(score("ash:percentile=0.5"), energy(logits(pruned * stretch)), rtol=1e-9)
    np.testing.assert_allclose(score("scale:percentile=0.5"), energy(logits(X * stretch)), rtol=1e-9)
    binary = np.where(pruned > 0, X.sum(axis=1, keepdims=True) / keep, 0.0)
    np.testing.assert_allclose(score("ash:percentile=0.5,variant=b"), energy(logits(binary)), rtol=1e-9)


def test_prototype_cosines():
    def cosine(table):
        return X @ table.T / np.linalg.norm(X, axis=1, keepdims=True) / np.linalg.norm(table, axis=1)

    np.testing.assert_allclose(score("ctm"), cosine(W).max(axis=1), rtol=1e-9)
    means = np.stack([H[c == Y].mean(axis=0) for c in range(5)])
    np.testing.assert_allclose(score("ctm_mean"), cosine(means).max(axis=1), rtol=1e-9)


def test_principal_subspaces_are_scikit_learns():
    from sklearn.decomposition import PCA

    pca = PCA(n_components=4).fit(H)
    rebuilt = pca.inverse_transform(pca.transform(X))
    error = np.linalg.norm(X - rebuilt, axis=1)
    np.testing.assert_allclose(score("pca:dim=4"), -error / np.linalg.norm(X, axis=1), rtol=1e-8)
    share = np.linalg.norm(pca.transform(X), axis=1) / np.linalg.norm(X - H.mean(axis=0), axis=1)
    np.testing.assert_allclose(score("neco:dim=4"), share, rtol=1e-8)


def test_kpca_with_every_row_a_landmark_is_exact_kernel_pca():
    """With as many landmarks as fit rows the Nyström map is the kernel's own feature space."""
    unit = H / np.linalg.norm(H, axis=1, keepdims=True)
    queries = X / np.linalg.norm(X, axis=1, keepdims=True)
    sigma = 0.6
    kernel = lambda a, b: np.exp(-(1 - a @ b.T) / sigma**2)  # noqa: E731
    gram, cross = kernel(unit, unit), kernel(queries, unit)
    centred = gram - gram.mean(axis=0) - gram.mean(axis=1, keepdims=True) + gram.mean()
    cross_centred = cross - cross.mean(axis=1, keepdims=True) - gram.mean(axis=0) + gram.mean()
    values, vectors = np.linalg.eigh(centred)
    projected = cross_centred @ vectors[:, -6:] / np.sqrt(values[-6:])
    # The part of a query outside the landmarks' span is not seen by the Nyström map, so its own norm stands in.
    inside = np.sum(cross * np.linalg.solve(gram + 1e-12 * np.eye(len(gram)), cross.T).T, axis=1)
    own = inside - 2 * cross.mean(axis=1) + gram.mean()
    expected = -(own - np.sum(projected**2, axis=1)) / np.sqrt(inside)
    np.testing.assert_allclose(score(f"kpca:sigma={sigma},landmarks=200,dim=6"), expected, rtol=1e-4, atol=1e-6)


def test_pnml_regret():
    unit = H / np.linalg.norm(H, axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(unit.T @ unit)
    inverse = vectors / (values + 1e-6 * values[-1]) @ vectors.T
    queries = X / np.linalg.norm(X, axis=1, keepdims=True)
    leverage = np.einsum("ni,ij,nj->n", queries, inverse, queries)[:, None]
    p = softmax(ZX)
    regret = np.log(np.sum(p / (p + p ** (leverage / (1 + leverage)) * (1 - p)), axis=1))
    np.testing.assert_allclose(score("pnml"), -regret, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("s2", ["l1", "residual"])
def test_combined_scores_keep_the_papers_ranking(s2):
    if s2 == "l1":
        statistic, fit_statistic = np.abs(X).sum(axis=1), np.abs(H).sum(axis=1)
        ratio = statistic / fit_statistic.mean()
    else:
        residual = CASE.fitted("residual")
        statistic, fit_statistic = residual.compute(CASE.rows), residual.compute(CASE.fit)
        ratio = fit_statistic.mean() / statistic
    a, b = fit_statistic.mean() - 3 * fit_statistic.std(), 1 / fit_statistic.std()
    sirc = -(1 - softmax(ZX).max(axis=1)) * (1 + np.exp(-b * (statistic - a)))
    np.testing.assert_array_equal(np.argsort(score(f"sirc:s2={s2}")), np.argsort(sirc))
    rule = (1 - 0.25 - 0.1) * softmax(ZX).max(axis=1) - 0.1 / ratio
    np.testing.assert_array_equal(np.argsort(score(f"plugin_bb:s_ood={s2},c_out=0.1")), np.argsort(rule))


def test_pnorm_by_hand():
    for p, centre in ((2, True), (3, False)):
        z = ZX - ZX.mean(axis=1, keepdims=True) if centre else ZX
        expected = z.max(axis=1) / np.linalg.norm(z, ord=p, axis=1)
        np.testing.assert_allclose(score(f"pnorm:p={p},centre={str(centre).lower()}"), expected, rtol=1e-9)


def test_statistics_of_a_shifted_stream_keep_their_digits():
    """Features a million away from the origin: two-pass accuracy, where a plain sum of squares keeps three digits."""
    shifted = Signals(CASE.fit.logits, H + 1e6)
    fitted = fit_score("mahalanobis:shrinkage=0.0", None, FitData.of(shifted, Y, None))
    np.testing.assert_allclose(
        fitted.compute(Signals(CASE.rows.logits, X + 1e6)), score("mahalanobis:shrinkage=0.0"), rtol=1e-4
    )
