"""Classical learning and statistics: margins, embeddings of distances, sparse and low-rank fits, trees, samplers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class RandomFeatureMachine(nn.Module):
    """A support vector machine on random Fourier features (Rahimi and Recht, 2007): squared hinge, one against all."""

    def __init__(self, features: int, width: int, classes: int, gamma: float) -> None:
        super().__init__()
        self.register_buffer("omega", math.sqrt(2 * gamma) * torch.randn(features, width))
        self.register_buffer("phase", 2 * math.pi * torch.rand(width))
        self.out = nn.Linear(width, classes)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = math.sqrt(2 / self.phase.numel()) * torch.cos(x @ self.omega + self.phase)
        margin = self.out(z) * (2 * F.one_hot(y, self.out.out_features) - 1)
        return F.relu(1 - margin).square().sum(1).mean(), 1e-4 * self.out.weight.square().sum()


def margins(place: Place) -> Made:
    n, d, width = place.size(500, 32_768), place.size(16, 128), place.size(128, 2048)
    return RandomFeatureMachine(d, width, 10, 0.1).to(place.device), (place.randn(n, d), place.randint(10, n))


def document_classes(counts: Tensor, labels: Tensor, fresh: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Naive Bayes of documents, its complement (Rennie et al., 2003) with weights normalised; posteriors of new."""
    weighted = torch.log1p(counts) * torch.log(len(counts) / (counts > 0).sum(0).clamp(min=1))
    weighted = F.normalize(weighted, dim=1)
    membership = F.one_hot(labels, classes).to(counts.dtype)
    per_class = membership.T @ weighted
    prior = membership.mean(0).log()
    likelihood = torch.log((per_class + 1) / (per_class.sum(1, keepdim=True) + counts.size(1)))
    complement = per_class.sum(0) - per_class + 1
    weights = -torch.log(complement / complement.sum(1, keepdim=True))
    weights = weights / weights.abs().sum(1, keepdim=True)
    return F.log_softmax(prior + fresh @ likelihood.T, dim=1), fresh @ weights.T


def naive_bayes(place: Place) -> Made:
    n, m, words = place.size(400, 20_000), place.size(200, 20_000), place.size(500, 8192)
    counts = (4 * place.rand(n + m, words).pow(8)).floor()
    return document_classes, (counts[:n], place.randint(12, n), counts[n:], 12)


def independent_components(x: Tensor, w: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """FastICA (Hyvärinen, 1999): whitening, fixed points of the tanh contrast, symmetric decorrelation."""
    x = x - x.mean(1, keepdim=True)
    values, vectors = torch.linalg.eigh(x @ x.T / x.size(1))
    white = (vectors / values.clamp(min=1e-8).sqrt()).T @ x

    def decorrelated(w: Tensor) -> Tensor:
        e, v = torch.linalg.eigh(w @ w.T)
        return v @ torch.diag(e.clamp(min=1e-12).rsqrt()) @ v.T @ w

    w = decorrelated(w)
    for _ in range(rounds):
        g = torch.tanh(w @ white)
        w = decorrelated(g @ white.T / white.size(1) - (1 - g.square()).mean(1, keepdim=True) * w)
    sources = w @ white
    return sources.square().mean(1), (sources.pow(4).mean(1) - 3).sort().values


def unmixed(place: Place) -> Made:
    k, n = place.size(6, 32), place.size(4000, 400_000)
    sources = torch.stack([torch.sign(torch.sin(0.01 * (i + 1) * torch.arange(n))) for i in range(k)])
    mixing = torch.randn(k, k)
    x = (mixing @ (sources + 0.3 * torch.randn(k, n).pow(3))).to(place.device)
    return independent_components, (x, place.randn(k, k), place.size(5, 10))


def neighbour_embedding(y: Tensor, distances: Tensor, perplexity: float, rounds: int) -> Tensor:
    """t-SNE (van der Maaten and Hinton, 2008): bandwidths by bisection, Student's similarities, the divergence."""
    n = distances.size(0)
    own = torch.eye(n, device=y.device, dtype=torch.bool)
    beta, low, high = torch.ones_like(y[:, :1]), torch.zeros_like(y[:, :1]), torch.full_like(y[:, :1], 1e3)
    with torch.no_grad():
        for _ in range(rounds):
            p = torch.exp(-distances * beta).masked_fill(own, 0)
            total = p.sum(1, keepdim=True).clamp(min=1e-12)
            entropy = total.log() + beta * (distances * p).sum(1, keepdim=True) / total
            wide = entropy > math.log(perplexity)
            low, high = torch.where(wide, beta, low), torch.where(wide, high, beta)
            beta = (low + high) / 2
        p = p / total
        p = ((p + p.T) / (2 * n)).clamp(min=1e-12)
    q = (1 / (1 + torch.cdist(y, y).square())).masked_fill(own, 0)
    q = (q / q.sum()).clamp(min=1e-12)
    return (p * (p.log() - q.log())).sum()


def neighbours_in_a_plane(place: Place) -> Made:
    n = place.size(150, 3000)
    x = place.randn(n, 10)
    return neighbour_embedding, (place.randn(n, 2).requires_grad_(), torch.cdist(x, x).square() / 20, 20.0, 12)


def scaled_distances(x: Tensor, wanted: Tensor, weight: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """Multidimensional scaling by SMACOF: Guttman's transform under weights, the stress after each round."""
    n = x.size(0)
    laplacian = torch.diag(weight.sum(1)) - weight
    inverse = torch.linalg.inv(laplacian + 1 / n) - 1 / n
    stress = []
    for _ in range(rounds):
        d = torch.cdist(x, x)
        ratio = torch.where(d > 1e-9, weight * wanted / d.clamp(min=1e-9), 0)
        b = torch.diag(ratio.sum(1)) - ratio
        x = inverse @ (b @ x)
        stress.append((weight * (d - wanted).square()).sum() / 2)
    return x, torch.stack(stress)


def maps_of_distances(place: Place) -> Made:
    n = place.size(120, 2048)
    truth = place.randn(n, 5)
    weight = place.rand(n, n)
    weight = ((weight + weight.T) / 2).fill_diagonal_(0)
    return scaled_distances, (place.randn(n, 2), torch.cdist(truth, truth), weight, place.size(6, 12))


def organised_map(weights: Tensor, x: Tensor, grid: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """Kohonen's map in batches: winners, neighbourhoods that narrow, means; how rough the borders are in the end."""
    for r in range(rounds):
        winner = torch.cdist(x, weights).argmin(1)
        sigma = 3.0 * (0.5 / 3.0) ** (r / rounds)
        near = torch.exp(-torch.cdist(grid, grid).square() / (2 * sigma**2))[winner]
        weights = near.T @ x / near.sum(0)[:, None].clamp(min=1e-6)
    apart = torch.cdist(weights, weights)
    adjacent = (torch.cdist(grid, grid) < 1.5) & (torch.cdist(grid, grid) > 0)
    return weights, (apart * adjacent).sum(1) / adjacent.sum(1)


def kohonen(place: Place) -> Made:
    side, n, d = place.size(8, 40), place.size(800, 65_536), place.size(8, 64)
    index = torch.arange(side * side, device=place.device)
    grid = torch.stack([index // side, index % side], dim=1).float()
    return organised_map, (place.randn(side * side, d), place.randn(n, d), grid, place.size(4, 8))


def exemplars(similarity: Tensor, rounds: int, damping: float) -> tuple[Tensor, Tensor]:
    """Affinity propagation (Frey and Dueck, 2007): responsibilities and availabilities, damped; who stands for whom."""
    n = similarity.size(0)
    r, a = torch.zeros_like(similarity), torch.zeros_like(similarity)
    index = torch.arange(n, device=similarity.device)
    for _ in range(rounds):
        total = a + similarity
        first, at = total.max(1)
        total[index, at] = -torch.inf
        second = total.max(1).values
        fresh = similarity - first[:, None]
        fresh[index, at] = similarity[index, at] - second
        r = damping * r + (1 - damping) * fresh
        positive = r.clamp(min=0)
        positive.diagonal().copy_(r.diagonal())
        support = positive.sum(0) - positive
        own = support.diagonal().clone()
        support = support.clamp(max=0)
        support.diagonal().copy_(own)
        a = damping * a + (1 - damping) * support
    return (r + a).argmax(1), (r + a).diagonal()


def affinities(place: Place) -> Made:
    n = place.size(150, 3000)
    x = place.randn(n, 2) + 5 * place.randint(3, n, 1)
    similarity = -torch.cdist(x, x).square()
    similarity.diagonal().fill_(similarity.median().item())
    return exemplars, (similarity, place.size(12, 24), 0.6)


def shifted_modes(x: Tensor, start: Tensor, bandwidth: float, rounds: int) -> tuple[Tensor, Tensor]:
    """Mean shift with Epanechnikov's kernel, then modes joined that came to lie within half a bandwidth."""
    y = start
    for _ in range(rounds):
        inside = (torch.cdist(y, x) < bandwidth).to(x.dtype)
        y = torch.where(inside.sum(1, keepdim=True) > 0, inside @ x / inside.sum(1, keepdim=True).clamp(min=1), y)
    close = torch.cdist(y, y) < 0.5 * bandwidth
    leader = torch.where(close, torch.arange(len(y), device=y.device), len(y)).amin(1)
    return y, torch.zeros(len(y), dtype=torch.int64, device=y.device).index_add_(0, leader, torch.ones_like(leader))


def modes_of_colour(place: Place) -> Made:
    n, m = place.size(1500, 65_536), place.size(150, 2048)
    x = place.randn(n, 3) + 4 * place.randint(4, n, 1)
    return shifted_modes, (x, x[:m].clone(), 1.5, place.size(6, 8))


def coordinate_paths(gram: Tensor, correlation: Tensor, penalties: Tensor, sweeps: int, ratio: float) -> Tensor:
    """The elastic net by cyclic coordinate descent (Friedman et al., 2010), all penalties of a path side by side."""
    features = gram.size(0)
    beta = torch.zeros(penalties.numel(), features, dtype=gram.dtype, device=gram.device)
    for _ in range(sweeps):
        for j in range(features):
            rho = correlation[j] - beta @ gram[j] + beta[:, j] * gram[j, j]
            beta[:, j] = (
                F.softshrink(rho, 0) if ratio == 0 else torch.sign(rho) * (rho.abs() - ratio * penalties).relu()
            )
            beta[:, j] /= gram[j, j] + (1 - ratio) * penalties
    return beta


def elastic_paths(place: Place) -> Made:
    n, d, path = 400, place.size(10, 24), place.size(50, 4096)
    x = place.randn(n, d)
    y = x[:, :3].sum(1) + 0.1 * place.randn(n)
    penalties = torch.logspace(0, -3, path, device=place.device)
    return coordinate_paths, (x.T @ x / n, x.T @ y / n, penalties, place.size(3, 4), 0.9)


def orthogonal_pursuit(signal: Tensor, dictionary: Tensor, atoms: int) -> tuple[Tensor, Tensor]:
    """Orthogonal matching pursuit of a batch: the atom most alike, least squares of those so far by Cholesky."""
    residual, chosen = signal, []
    rows = torch.arange(len(signal), device=signal.device)
    taken = torch.zeros(len(signal), dictionary.size(1), dtype=torch.bool, device=signal.device)
    for _ in range(atoms):
        score = (residual @ dictionary).abs().masked_fill(taken, -1)
        best = score.argmax(1)
        taken[rows, best] = True
        chosen.append(best)
        active = dictionary.T[torch.stack(chosen, dim=1)]
        gram = active @ active.transpose(1, 2) + 1e-6 * torch.eye(len(chosen), device=signal.device)
        weights = torch.cholesky_solve(active @ signal[..., None], torch.linalg.cholesky(gram))
        residual = signal - (weights * active).sum(1)
    code = torch.zeros_like(taken, dtype=signal.dtype)
    return code.scatter(1, torch.stack(chosen, dim=1), weights.squeeze(-1)), residual.norm(dim=1)


def sparse_codes(place: Place) -> Made:
    b, d, k = place.size(100, 20_000), place.size(32, 64), place.size(96, 256)
    return orthogonal_pursuit, (place.randn(b, d), F.normalize(place.randn(d, k), dim=0), place.size(4, 6))


def boosted_stumps(x: Tensor, y: Tensor, thresholds: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """AdaBoost of decision stumps: all thresholds of all features at once, the best one, weights of samples anew."""
    side = torch.where(x[:, :, None] > thresholds, 1.0, -1.0).flatten(1)
    weight = torch.full_like(y, 1 / len(y))
    score, alphas = torch.zeros_like(y), []
    for _ in range(rounds):
        error = (1 - (weight * y) @ side) / 2
        at = torch.minimum(error, 1 - error).argmin()
        stump, e = side[:, at], error[at].clamp(1e-6, 1 - 1e-6)
        alpha = 0.5 * torch.log((1 - e) / e)
        score = score + alpha * stump
        weight = weight * torch.exp(-alpha * y * stump)
        weight = weight / weight.sum()
        alphas.append(alpha)
    return score, torch.stack(alphas)


def stumps(place: Place) -> Made:
    n, d, k = place.size(600, 65_536), place.size(10, 32), place.size(8, 32)
    x = place.randn(n, d)
    y = torch.where(x[:, 0] + x[:, 1] ** 2 > 1, 1.0, -1.0)
    return boosted_stumps, (x, y, torch.linspace(-2, 2, k, device=place.device).expand(d, k), place.size(6, 12))


def oblivious_forest(
    x: Tensor, feature: Tensor, border: Tensor, leaves: Tensor, ctr: Tensor, category: Tensor
) -> Tensor:
    """CatBoost's trees: one split a level, bits make the leaf; categories as smoothed means join the numbers."""
    counts = torch.stack([ctr[0][category], ctr[1][category]], dim=-1)
    encoded = (counts[..., 0] + 0.5) / (counts[..., 1] + 1)
    everything = torch.cat([x, encoded], dim=1)
    bits = everything[:, feature] > border
    powers = 2 ** torch.arange(feature.size(1), device=x.device)
    leaf = (bits * powers).sum(-1)
    return leaves[torch.arange(len(leaves), device=x.device), leaf].sum(1).softmax(-1)


def forests(place: Place) -> Made:
    n, d, trees, depth, classes = place.size(200, 50_000), 20, place.size(50, 100), 6, 4
    ctr = torch.stack([20 * place.rand(1000), 20 + 20 * place.rand(1000)])
    return oblivious_forest, (
        place.randn(n, d),
        place.randint(d + 3, trees, depth),
        place.randn(trees, depth),
        0.1 * place.randn(trees, 1 << depth, classes),
        ctr,
        place.randint(1000, n, 3),
    )


def outlier_factors(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Breunig et al., 2000: reachability, local density and its ratio to the neighbours'; the share of outliers."""
    distance = torch.cdist(x, x).fill_diagonal_(torch.inf)
    near, index = distance.topk(k, largest=False)
    reach = torch.maximum(near, near[:, -1][index])
    density = 1 / reach.mean(1).clamp(min=1e-10)
    factor = density[index].mean(1) / density
    return factor, (factor > 1.5).sum()


def local_outliers(place: Place) -> Made:
    n = place.size(500, 16_384)
    x = place.randn(n, 8)
    x[: n // 50] *= 4
    return outlier_factors, (x, 20)


def sparse_and_low_rank(m: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """Robust principal components (Candès et al., 2011): augmented Lagrangian, singular values and entries shrunk."""
    lam = 1 / math.sqrt(max(m.shape))
    mu = m.numel() / (4 * m.abs().sum())
    sparse, y = torch.zeros_like(m), torch.zeros_like(m)
    for _ in range(rounds):
        u, s, vh = torch.linalg.svd(m - sparse + y / mu, full_matrices=False)
        low = (u * (s - 1 / mu).clamp(min=0)) @ vh
        rest = m - low + y / mu
        sparse = rest.sign() * (rest.abs() - lam / mu).clamp(min=0)
        y = y + mu * (m - low - sparse)
    return low, sparse


def corrupted_matrix(place: Place) -> Made:
    n, k = place.size(60, 512), place.size(40, 256)
    low = place.randn(n, 3) @ place.randn(3, k)
    return sparse_and_low_rank, (low + 5 * place.randn(n, k) * (place.rand(n, k) < 0.05), place.size(5, 8))


def parallel_factors(x: Tensor, a: Tensor, b: Tensor, c: Tensor, rounds: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """CANDECOMP/PARAFAC by alternating least squares with Khatri-Rao products, columns of unit length, the fit."""
    for _ in range(rounds):
        a = torch.einsum("ijk,jr,kr->ir", x, b, c) @ torch.linalg.pinv((b.T @ b) * (c.T @ c))
        b = torch.einsum("ijk,ir,kr->jr", x, a, c) @ torch.linalg.pinv((a.T @ a) * (c.T @ c))
        b = F.normalize(b, dim=0)
        c = torch.einsum("ijk,ir,jr->kr", x, a, b) @ torch.linalg.pinv((a.T @ a) * (b.T @ b))
        c = F.normalize(c, dim=0)
    error = x - torch.einsum("ir,jr,kr->ijk", a, b, c)
    return a.norm(dim=0), b.square().sum(), c.square().sum(), 1 - error.norm() / x.norm()


def tensor_factors(place: Place) -> Made:
    n, r = place.size(24, 192), place.size(4, 16)
    factors = [place.randn(n, r) for _ in range(3)]
    x = torch.einsum("ir,jr,kr->ijk", *factors) + 0.1 * place.randn(n, n, n)
    return parallel_factors, (x, *(place.rand(n, r) for _ in range(3)), place.size(3, 5))


def latent_projections(x: Tensor, y: Tensor, components: int) -> tuple[Tensor, Tensor, Tensor]:
    """Partial least squares by NIPALS: weights, scores, coefficients, importance of variables."""
    x, y = x - x.mean(0), y - y.mean(0)
    residual, target, weights, loadings, answers, explained = x, y, [], [], [], []
    for _ in range(components):
        w = residual.T @ target[:, 0]
        for _ in range(3):
            t = residual @ (w / w.norm())
            q = target.T @ t / t.square().sum()
            w = residual.T @ (target @ q)
        w = w / w.norm()
        t = residual @ w
        p, q = residual.T @ t / t.square().sum(), target.T @ t / t.square().sum()
        residual, target = residual - torch.outer(t, p), target - torch.outer(t, q)
        weights.append(w)
        loadings.append(p)
        answers.append(q)
        explained.append(q.square().sum() * t.square().sum())
    w, p, q = torch.stack(weights, 1), torch.stack(loadings, 1), torch.stack(answers, 1)
    share = torch.stack(explained)
    importance = torch.sqrt(x.size(1) * (w.square() * share).sum(1) / share.sum())
    return w @ torch.linalg.solve(p.T @ w, q.T), importance, target.square().mean()


def spectra_to_concentrations(place: Place) -> Made:
    n, d = place.size(120, 4096), place.size(200, 2048)
    latent = place.randn(n, 6)
    x = latent @ place.randn(6, d) + 0.1 * place.randn(n, d)
    return latent_projections, (x, latent[:, :3] @ place.randn(3, 2), place.size(4, 8))


def stein_particles(theta: Tensor, x: Tensor, y: Tensor, rounds: int, step: float) -> Tensor:
    """Stein variational gradient descent (Liu and Wang, 2016) of a logistic regression, the median bandwidth."""
    n = theta.size(0)
    for _ in range(rounds):
        score = (y - torch.sigmoid(theta @ x.T)) @ x - theta
        d2 = torch.cdist(theta, theta).square()
        h = d2.flatten().median() / math.log(n + 1) + 1e-6
        k = torch.exp(-d2 / h)
        repulsion = 2 / h * (theta * k.sum(1, keepdim=True) - k @ theta)
        theta = theta + step * (k @ score + repulsion) / n
    return theta


def posterior_particles(place: Place) -> Made:
    n, d, data = place.size(64, 1024), place.size(8, 32), place.size(200, 8192)
    x = place.randn(data, d)
    return stein_particles, (place.randn(n, d), x, (x[:, 0] > 0).float(), place.size(5, 10), 0.05)


class MixtureDensity(nn.Module):
    """Bishop, 1994: a network's Gaussians with Cholesky factors; the likelihood, and draws' mean as a by-product."""

    def __init__(self, inputs: int, width: int, parts: int, outputs: int) -> None:
        super().__init__()
        self.parts, self.outputs = parts, outputs
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.head = nn.Linear(width, parts * (1 + 2 * outputs + outputs * (outputs - 1) // 2))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        k, d = self.parts, self.outputs
        out = self.head(self.body(x)).view(-1, k, 1 + 2 * d + d * (d - 1) // 2)
        logits, mean, log_scale, lower = out.split([1, d, d, d * (d - 1) // 2], dim=-1)
        factor = torch.diag_embed(log_scale.clamp(-5, 3).exp())
        rows, columns = torch.tril_indices(d, d, -1, device=x.device)
        factor = factor.index_put(
            (
                torch.arange(len(x), device=x.device)[:, None, None],
                torch.arange(k, device=x.device)[:, None],
                rows,
                columns,
            ),
            lower,
        )
        z = torch.linalg.solve_triangular(factor, (y[:, None] - mean)[..., None], upper=False).squeeze(-1)
        log_prob = -0.5 * z.square().sum(-1) - log_scale.clamp(-5, 3).sum(-1) - 0.5 * d * math.log(2 * math.pi)
        weight = F.log_softmax(logits.squeeze(-1), dim=1)
        return -torch.logsumexp(weight + log_prob, dim=1).mean(), (weight.exp()[..., None] * mean).sum(1).detach()


def mixture_density(place: Place) -> Made:
    n, width = place.size(200, 32_768), place.size(32, 256)
    return MixtureDensity(8, width, 5, 3).to(place.device), (place.randn(n, 8), place.randn(n, 3))


class TargetedOutcomes(nn.Module):
    """Shi et al., 2019 (DragonNet): two outcomes and a propensity from one body, targeted regularisation, AIPW."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.outcomes = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Linear(width, 1)) for _ in "01"
        )
        self.propensity = nn.Linear(width, 1)
        self.epsilon = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, treated: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.body(x)
        y0, y1 = (head(h).squeeze(-1) for head in self.outcomes)
        logit = self.propensity(h).squeeze(-1)
        g = torch.sigmoid(logit).clamp(0.01, 0.99)
        fitted = torch.where(treated > 0, y1, y0)
        weight = treated / g - (1 - treated) / (1 - g)
        regression = F.mse_loss(fitted, y) + F.binary_cross_entropy_with_logits(logit, treated)
        targeted = (y - fitted - self.epsilon * weight).square().mean()
        effect = (y1 - y0 + weight * (y - fitted)).detach()
        return regression, targeted, effect


def treatment_effects(place: Place) -> Made:
    n, d = place.size(256, 32_768), place.size(24, 128)
    x = place.randn(n, d)
    treated = (place.rand(n) < torch.sigmoid(x[:, 0])).float()
    return TargetedOutcomes(d, place.size(32, 256)).to(place.device), (x, treated, x[:, 1] + treated + place.randn(n))


def crossing_effects(
    y: Tensor, x: Tensor, subject: Tensor, subjects: int, rounds: int
) -> tuple[Tensor, Tensor, Tensor]:
    """A mixed model with random intercepts by expectation and maximisation: shrunken subjects, variances, slopes."""
    count = torch.zeros(subjects, dtype=y.dtype, device=y.device).index_add_(0, subject, torch.ones_like(y))
    gram = torch.linalg.inv(x.T @ x)
    beta = gram @ (x.T @ y)
    between, within = y.var() / 2, y.var() / 2
    for _ in range(rounds):
        residual = y - x @ beta
        total = torch.zeros_like(count).index_add_(0, subject, residual)
        variance = 1 / (count / within + 1 / between)
        effect = variance * total / within
        beta = gram @ (x.T @ (y - effect[subject]))
        residual = y - x @ beta - effect[subject]
        between = (effect.square() + variance).mean()
        within = (residual.square() + variance[subject]).mean()
    return beta, effect, between / (between + within)


def mixed_models(place: Place) -> Made:
    n, subjects, d = place.size(4000, 2_000_000), place.size(100, 20_000), place.size(4, 16)
    subject, x = place.randint(subjects, n), place.randn(n, d)
    y = x.sum(1) + 2 * place.randn(subjects)[subject] + place.randn(n)
    return crossing_effects, (y, x, subject, subjects, place.size(6, 12))


class CanonicalViews(nn.Module):
    """Andrew et al., 2013 (deep CCA): two encoders, whitened by eigenvalues, the nuclear norm of what they share."""

    def __init__(self, first: int, second: int, width: int, shared: int) -> None:
        super().__init__()
        self.f = nn.Sequential(nn.Linear(first, width), nn.Sigmoid(), nn.Linear(width, shared, bias=False))
        self.g = nn.Sequential(nn.Linear(second, width), nn.Sigmoid(), nn.Linear(width, shared, bias=False))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a, b = self.f(x), self.g(y)
        a, b = a - a.mean(0), b - b.mean(0)
        n = len(a) - 1

        def root(c: Tensor) -> Tensor:
            values, vectors = torch.linalg.eigh(c + 1e-2 * torch.eye(len(c), device=c.device, dtype=c.dtype))
            return vectors @ torch.diag(values.clamp(min=1e-9) ** -0.5) @ vectors.T

        t = root(a.T @ a / n) @ (a.T @ b / n) @ root(b.T @ b / n)
        return -torch.linalg.svdvals(t).sum()


def canonical_views(place: Place) -> Made:
    n, width, shared = place.size(256, 8192), place.size(64, 512), place.size(6, 32)
    common = place.randn(n, 8)
    x, y = common @ place.randn(8, 20) + place.randn(n, 20), common @ place.randn(8, 30) + place.randn(n, 30)
    return CanonicalViews(20, 30, width, shared).to(place.device), (x, y)


ROWS: tuple[Row, ...] = (
    Row("program/random_feature_margins", margins, "training"),
    Row("program/complement_word_classes", naive_bayes),
    Row("program/independent_components", unmixed),
    Row("program/student_neighbour_embedding", neighbours_in_a_plane, "training"),
    Row("program/majorised_distances", maps_of_distances),
    Row("program/self_organised_map", kohonen),
    Row("program/affinity_exemplars", affinities),
    Row("program/shifted_means", modes_of_colour),
    Row("program/elastic_net_paths", elastic_paths),
    Row("program/orthogonal_pursuit", sparse_codes),
    Row("program/boosted_stumps", stumps),
    Row("program/oblivious_forest", forests),
    Row("program/local_outlier_factors", local_outliers),
    Row("program/sparse_and_low_rank", corrupted_matrix),
    Row("program/parallel_tensor_factors", tensor_factors),
    Row("program/partial_least_squares", spectra_to_concentrations),
    Row("program/stein_particles", posterior_particles),
    Row("program/mixture_density", mixture_density, "training"),
    Row("program/treatment_effects", treatment_effects, "training"),
    Row("program/random_intercepts", mixed_models),
    Row("program/deep_canonical_views", canonical_views, "training"),
)
