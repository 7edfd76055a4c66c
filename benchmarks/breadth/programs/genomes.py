"""Reads and genomes: k-mers, minimisers, suffixes, backward search, piled bases, haplotypes, methyl marks, ancestry."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def kmer_spectrum(bases: Tensor, quality: Tensor, k: int, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Canonical k-mers by doubling shifts, counted by a hash, unknown bases skipped; the spectrum and weak reads."""
    known = (bases < 4) & (quality > 10)
    code = torch.where(known, bases, 0).long()
    n = code.size(1) - k + 1
    forward, reverse = torch.zeros_like(code[:, :n]), torch.zeros_like(code[:, :n])
    for i in range(k):
        forward = (forward << 2) | code[:, i : i + n]
        reverse = reverse | ((3 - code[:, i : i + n]) << (2 * i))
    bad = F.pad((~known).cumsum(1), (1, 0))
    whole = bad[:, k:] == bad[:, :-k]
    kmer = torch.minimum(forward, reverse)
    x = (kmer ^ (kmer >> 17)) * 0x2545F4914F6CDD1
    slot = (x >> 20) & ((1 << bits) - 1)
    slot = torch.where(whole, slot, 1 << bits)
    count = torch.zeros((1 << bits) + 1, dtype=torch.int64, device=bases.device)
    count.scatter_add_(0, slot.flatten(), torch.ones_like(slot.flatten()))
    spectrum = torch.bincount(count[:-1].clamp(max=63), minlength=64)
    depth = count[slot].masked_fill(~whole, 0)
    solid = depth >= 3
    weakest = torch.where(whole, depth, 1 << 30).amin(1)
    return spectrum, torch.stack([solid.sum(1), weakest, whole.sum(1)], 1), depth.amax(1)


def kmers(place: Place) -> Made:
    reads, length, bits = place.size(200, 20_000), place.size(120, 150), place.size(14, 22)
    genome = place.randint(4, reads * length // 8)
    start = place.randint(len(genome) - length, reads)
    bases = genome[start[:, None] + torch.arange(length, device=place.device)]
    bases = torch.where(place.rand(reads, length) < 0.01, place.randint(5, reads, length), bases)
    return kmer_spectrum, (bases.to(torch.uint8), place.randint(40, reads, length), 21, bits)


def minimiser_chains(query: Tensor, target: Tensor, k: int, window: int) -> tuple[Tensor, Tensor, Tensor]:
    """Li, 2018 (minimap): smallest hashes of windows as anchors, sorted against a target's, votes of diagonals."""

    def anchors(bases: Tensor) -> tuple[Tensor, Tensor]:
        codes = bases.unfold(1, k, 1)
        weights = 4 ** torch.arange(k - 1, -1, -1, device=bases.device)
        x = (codes * weights).sum(2)
        x = (~x + (x << 21)) & 0xFFFFFFFF
        x = x ^ (x >> 14)
        x = ((x + (x << 3)) + (x << 8)) & 0xFFFFFFFF
        x = x ^ (x >> 13)
        low, at = x.unfold(1, window, 1).min(2)
        at = at + torch.arange(at.size(1), device=at.device)
        fresh = F.pad(at[:, 1:] != at[:, :-1], (1, 0), value=True)
        return torch.where(fresh, low, -1), at

    q, q_at = anchors(query)
    t, t_at = anchors(target)
    ordered, order = t.sort(dim=1, stable=True)
    q_keys = torch.where(q < 0, 1 << 33, q)
    first = torch.searchsorted(ordered, q_keys)
    last = torch.searchsorted(ordered, q_keys, right=True)
    diagonals = torch.zeros(len(q), (query.size(1) + target.size(1)) // 16 + 2, dtype=torch.int64, device=q.device)
    for copy in range(3):
        hit = first + copy < last
        position = t_at.gather(1, order.gather(1, (first + copy).clamp(max=t.size(1) - 1)))
        bucket = (position - q_at + query.size(1)) // 16
        diagonals.scatter_add_(1, bucket, hit.long())
    votes = diagonals[:, :-1] + diagonals[:, 1:]
    best, where = votes.max(1)
    return votes, torch.stack([best, where * 16 - query.size(1), (q >= 0).sum(1)], 1), last - first


def chains(place: Place) -> Made:
    reads, n, m = place.size(16, 512), place.size(256, 1024), place.size(1024, 8192)
    target = place.randint(4, reads, m)
    query = torch.where(place.rand(reads, n) < 0.05, place.randint(4, reads, n), target[:, m // 4 : m // 4 + n])
    return minimiser_chains, (query, target, 13, 8)


def suffix_ranks(text: Tensor, rounds: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Manber and Myers, 1993: suffixes by doubled prefixes, Burrows and Wheeler's letters, longest common prefixes."""
    b, n = text.shape
    position = torch.arange(n, device=text.device)
    rank = text
    for step in range(rounds):
        reach = 1 << step
        after = F.pad(rank[:, reach:] + 1, (0, reach))
        key = rank * (n + 5) + after
        ordered, order = key.sort(dim=1, stable=True)
        fresh = F.pad((ordered[:, 1:] != ordered[:, :-1]).long(), (1, 0)).cumsum(1)
        rank = torch.empty_like(fresh).scatter_(1, order, fresh)
    letters = text.gather(1, (order - 1) % n)
    neighbour = order.roll(1, 1)
    alive = (position > 0).expand(b, -1)
    common = torch.zeros_like(order)
    for step in range(16):
        i, j = order + step, neighbour + step
        alive = alive & (i < n) & (j < n)
        alive = alive & (text.gather(1, i.clamp(max=n - 1)) == text.gather(1, j.clamp(max=n - 1)))
        common += alive
    runs = (letters[:, 1:] != letters[:, :-1]).sum(1)
    return order, letters, common, torch.stack([runs, common.amax(1)], 1)


def suffixes(place: Place) -> Made:
    return suffix_ranks, (place.randint(4, place.size(8, 256), place.size(512, 4096)), 5)


def backward_search(
    letters: Tensor, before: Tensor, start: Tensor, patterns: Tensor, stride: int
) -> tuple[Tensor, ...]:
    """Ferragina and Manzini, 2000: intervals of suffixes by ranks at checkpoints, one mismatch tried at every place."""
    blocks = letters.view(-1, stride)
    lane = torch.arange(stride, device=letters.device)

    def rank(letter: Tensor, at: Tensor) -> Tensor:
        block, rest = at // stride, at % stride
        inside = (blocks[block.clamp(max=len(blocks) - 1)] == letter[..., None]) & (lane < rest[..., None])
        return before[block, letter] + inside.sum(-1)

    def step(low: Tensor, high: Tensor, letter: Tensor) -> tuple[Tensor, Tensor]:
        return start[letter] + rank(letter, low), start[letter] + rank(letter, high)

    low = torch.zeros_like(patterns[:, 0])
    high = torch.full_like(low, len(letters))
    length = torch.zeros_like(low)
    wrong_low, wrong_high = torch.zeros_like(low), torch.zeros_like(low)
    tried = torch.zeros_like(low)
    for column in range(patterns.size(1) - 1, -1, -1):
        letter = patterns[:, column]
        wrong_low, wrong_high = step(wrong_low, wrong_high, letter)
        other = (letter + 1 + column % 3) % 4
        a, b = step(low, high, other)
        wider = (b - a) > (wrong_high - wrong_low)
        wrong_low, wrong_high = torch.where(wider, a, wrong_low), torch.where(wider, b, wrong_high)
        low, high = step(low, high, letter)
        length += high > low
        tried += (wrong_high - wrong_low).clamp(min=0)
    return torch.stack([low, high, length], 1), tried


def searched_reads(place: Place) -> Made:
    n, reads, length, stride = place.size(8192, 1 << 20), place.size(600, 50_000), place.size(16, 24), 32
    text = torch.randint(4, (n,))
    key = torch.zeros(n, dtype=torch.int64)
    for i in range(24):
        key = (key << 2) | text.roll(-i)
    letters = text[(key.argsort(stable=True) - 1) % n]
    hot = F.one_hot(letters.view(-1, stride), 4).sum(1).cumsum(0)
    total = F.one_hot(text, 4).sum(0)
    tables = (letters, F.pad(hot, (0, 0, 1, 0)), total.cumsum(0) - total)
    patterns = text[torch.randint(n - length, (reads, 1)) + torch.arange(length)]
    patterns = torch.where(torch.rand(reads, length) < 0.03, torch.randint(4, (reads, length)), patterns)
    return backward_search, (*(t.to(place.device) for t in (*tables, patterns)), stride)


def piled_bases(start: Tensor, bases: Tensor, quality: Tensor, strand: Tensor, reference: Tensor) -> tuple[Tensor, ...]:
    """A pile-up: coverage by differences, weights of bases by position, genotype likelihoods, strands that disagree."""
    n, length = len(reference), bases.size(1)
    edges = torch.zeros(n + 1, dtype=torch.int64, device=start.device)
    edges.index_add_(0, start, torch.ones_like(start))
    edges.index_add_(0, start + length, torch.full_like(start, -1))
    coverage = edges.cumsum(0)[:n]
    at = start[:, None] + torch.arange(length, device=start.device)
    error = torch.exp2(-quality / 3).clamp(max=0.7)
    agree, differ = torch.log1p(-error), torch.log(error / 3)
    half = torch.log(0.5 * (1 - error) + error / 6)
    flat = (at * 4 + bases).flatten()
    tables = quality.new_zeros(4, n * 4)
    for row, column in enumerate(
        (torch.ones_like(error), agree - differ, half - differ, strand[:, None].expand_as(error))
    ):
        tables[row].index_add_(0, flat, column.flatten())
    counts, same, mixed, minus = tables.view(4, n, 4).unbind(0)
    floor = quality.new_zeros(n).index_add_(0, at.flatten(), differ.flatten())[:, None]
    pair = torch.triu_indices(4, 4, 1, device=start.device)
    likelihood = torch.cat([floor + same, floor + mixed[:, pair[0]] + mixed[:, pair[1]]], 1)
    prior = torch.where(torch.arange(10, device=start.device) == reference[:, None], 0.0, -7.0)
    posterior = (likelihood + prior).log_softmax(1)
    share = (minus + 1) / (counts + 2)
    own = share.gather(1, reference[:, None])
    bias = (share - own).abs() * counts.sqrt()
    return coverage, posterior, counts, bias.amax(1)


def pile(place: Place) -> Made:
    n, reads, length = place.size(3000, 500_000), place.size(600, 60_000), place.size(60, 120)
    reference = place.randint(4, n)
    start = place.randint(n - length, reads)
    bases = reference[start[:, None] + torch.arange(length, device=place.device)]
    bases = torch.where(place.rand(reads, length) < 0.02, place.randint(4, reads, length), bases)
    quality = 10 + place.randint(30, reads, length).float()
    return piled_bases, (start, bases, quality, place.randint(2, reads).float(), reference)


def copied_haplotypes(
    panel: Tensor, typed: Tensor, observed: Tensor, distance: Tensor, error: float
) -> tuple[Tensor, ...]:
    """Li and Stephens, 2003: a haplotype as a mosaic of a panel's: forward, backward, what is missing imputed."""
    sites, k = panel.shape
    jump = 1 - torch.exp(-distance)
    alpha = observed.new_full((len(observed), k), 1 / k)
    log_likelihood = observed.new_zeros(len(observed))
    forward = []
    for s in range(sites):
        match = panel[s] == observed[:, s, None]
        emit = torch.where(typed[:, s, None], torch.where(match, 1 - error, error), 1.0)
        alpha = emit * ((1 - jump[s]) * alpha + jump[s] / k)
        total = alpha.sum(1, keepdim=True)
        alpha = alpha / total
        log_likelihood = log_likelihood + total[:, 0].log()
        forward.append(alpha)
    beta = torch.ones_like(alpha)
    dosage, surest = [], []
    for s in range(sites - 1, -1, -1):
        state = forward[s] * beta
        state = state / state.sum(1, keepdim=True)
        dosage.append(state @ panel[s])
        surest.append(state.amax(1))
        match = panel[s] == observed[:, s, None]
        emit = torch.where(typed[:, s, None], torch.where(match, 1 - error, error), 1.0)
        beta = emit * beta
        beta = (1 - jump[s]) * beta + jump[s] * beta.mean(1, keepdim=True)
        beta = beta / beta.sum(1, keepdim=True) * k
    imputed = torch.stack(dosage[::-1], 1)
    return imputed, log_likelihood, torch.stack(surest[::-1], 1).mean(1)


def haplotypes(place: Place) -> Made:
    people, k, sites = place.size(16, 512), place.size(100, 2000), place.size(48, 64)
    panel = (place.rand(sites, k) < place.rand(sites, 1)).float()
    observed = panel[:, place.randint(k, people)].t().contiguous()
    return copied_haplotypes, (panel, place.rand(people, sites) < 0.6, observed, 0.05 * place.rand(sites), 0.01)


class PairedReads(nn.Module):
    """A pair model of reads and haplotypes (as in GATK) over anti-diagonals, gaps' chances learnt by positions."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.open = nn.Parameter(torch.full((length,), -3.0))
        self.extend = nn.Parameter(torch.full((length,), -1.5))
        self.quality = nn.Parameter(torch.tensor(0.0))

    def forward(self, read: Tensor, quality: Tensor, haplotype: Tensor) -> tuple[Tensor, Tensor]:
        b, n = read.shape
        m = haplotype.size(1)
        wrong = torch.sigmoid(self.quality - quality)
        gap, longer = torch.sigmoid(self.open), torch.sigmoid(self.extend)
        stay, close = 1 - 2 * gap, 1 - longer
        match = read.new_zeros(b, n + 1, dtype=quality.dtype)
        insert = delete = before_match = before_insert = before_delete = match
        padded = F.pad(haplotype, (n, n), value=-1)
        total = quality.new_zeros(b)
        row = torch.arange(1, n + 1, device=read.device)
        for diagonal in range(2, n + m + 1):
            base = padded[:, diagonal - 1 : diagonal - 1 + n].flip(1)
            inside = (diagonal - row >= 1) & (diagonal - row <= m)
            emit = torch.where(base == read, 1 - wrong, wrong / 3) * inside
            first = F.pad(quality.new_full((b, 1), 1 / m), (0, n))
            old_delete = before_delete + first
            new_match = emit * (stay * before_match[:, :-1] + close * (before_insert[:, :-1] + old_delete[:, :-1]))
            new_insert = (gap * match[:, :-1] + longer * insert[:, :-1]) * inside
            new_delete = (gap * match[:, 1:] + longer * delete[:, 1:]) * inside
            before_match, before_insert, before_delete = match, insert, delete
            match, insert, delete = (F.pad(x, (1, 0)) for x in (new_match, new_insert, new_delete))
            total = total + match[:, -1] + insert[:, -1]
        return -total.clamp(min=1e-25).log() / n, (total.detach() > 1e-12).sum()


def paired_reads(place: Place) -> Made:
    b, n, m = place.size(64, 8192), place.size(20, 32), place.size(28, 48)
    haplotype = place.randint(4, b, m)
    read = torch.where(place.rand(b, n) < 0.05, place.randint(4, b, n), haplotype[:, 4 : 4 + n])
    return PairedReads(n).to(place.device), (read, 3 + 3 * place.rand(b, n), haplotype)


class MethylMarks(nn.Module):
    """Marks of methyl along a genome: beta-binomial counts of two groups, levels smoothed along basis functions."""

    def __init__(self, sites: int, knots: int) -> None:
        super().__init__()
        self.level, self.change = nn.Parameter(0.3 * torch.randn(knots)), nn.Parameter(0.1 * torch.randn(knots))
        self.own = nn.Parameter(0.1 * torch.randn(sites))
        self.spread = nn.Parameter(torch.tensor(2.0))

    def forward(self, position: Tensor, marked: Tensor, depth: Tensor, group: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        knots = len(self.level)
        at = position * (knots - 3)
        cell = at.floor().clamp(0, knots - 4)
        u = at - cell
        basis = torch.stack([(1 - u).pow(3), 3 * u**3 - 6 * u**2 + 4, -3 * u**3 + 3 * u**2 + 3 * u + 1, u**3], 1) / 6
        index = cell.long()[:, None] + torch.arange(4, device=at.device)
        smooth, change = (basis * self.level[index]).sum(1) + self.own, (basis * self.change[index]).sum(1)
        mean = torch.sigmoid(smooth + group[:, None] * change)
        size = 1 + self.spread.exp()
        a, b = mean * size, (1 - mean) * size
        seen = depth > 0
        log_p = torch.lgamma(marked + a) + torch.lgamma(depth - marked + b) - torch.lgamma(depth + size)
        log_p = log_p - torch.lgamma(a) - torch.lgamma(b) + torch.lgamma(size)
        log_p = log_p + torch.lgamma(depth + 1) - torch.lgamma(marked + 1) - torch.lgamma(depth - marked + 1)
        loss = -(log_p * seen).sum(0) / seen.sum(0).clamp(min=1)
        rough = (self.level[2:] - 2 * self.level[1:-1] + self.level[:-2]).square()
        run = (change.detach().abs() > 0.1).long()
        edge = torch.arange(len(run), device=at.device)
        longest = (edge - torch.where(run == 0, edge, -1).cummax(0).values).amax()
        return loss, rough + 0.1 * self.change.abs()[1:-1] + 0.01 * self.own.square().mean(), longest


def methyl_marks(place: Place) -> Made:
    sites, samples, knots = place.size(1500, 200_000), place.size(8, 16), place.size(60, 4000)
    depth = place.randint(20, samples, sites).float()
    marked = (depth * place.rand(samples, sites)).round()
    groups = (torch.arange(samples, device=place.device) % 2).float()
    return MethylMarks(sites, knots).to(place.device), (place.rand(sites).sort().values, marked, depth, groups)


class Ancestry(nn.Module):
    """Alexander et al., 2009 (ADMIXTURE): people as mixtures of populations with frequencies of their own."""

    def __init__(self, people: int, populations: int, sites: int) -> None:
        super().__init__()
        self.share = nn.Parameter(0.5 * torch.randn(people, populations))
        self.frequency = nn.Parameter(0.5 * torch.randn(populations, sites))
        self.ancestral = nn.Parameter(torch.zeros(sites))
        self.drift = nn.Parameter(torch.full((populations,), -1.0))

    def forward(self, genotype: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        share = self.share.softmax(1)
        drift = F.softplus(self.drift)[:, None]
        logit = self.ancestral + drift * self.frequency
        p = (share @ torch.sigmoid(logit)).clamp(1e-4, 1 - 1e-4)
        known = genotype < 3
        g = torch.where(known, genotype, 0).to(p.dtype)
        loss = -(g * p.log() + (2 - g) * torch.log1p(-p)) * known
        prior = 0.5 * self.frequency.square().mean(1)
        q = torch.sigmoid(logit.detach())
        between = (q[:, None] - q).square().mean(2) / (q[:, None] * (1 - q) + q * (1 - q[:, None])).mean(2)
        return loss.sum(1) / known.sum(1), prior + 0.01 * drift[:, 0], between


def ancestry(place: Place) -> Made:
    people, sites, populations = place.size(60, 2000), place.size(1500, 8000), place.size(4, 8)
    return Ancestry(people, populations, sites).to(place.device), (place.randint(4, people, sites).to(torch.uint8),)


class BothStrands(nn.Module):
    """Convolutions that see both strands alike (Shrikumar et al., 2017), dilated, counts by multinomials."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(width, 4, 15) * 60**-0.5)
        self.weights = nn.ParameterList(torch.randn(width, 2 * width, 3) * (6 * width) ** -0.5 for _ in range(layers))
        self.scale = nn.Parameter(torch.ones(layers, width))
        self.profile, self.total = nn.Conv1d(width, 1, 9, padding=4), nn.Linear(width, 1)

    def forward(self, sequence: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        x = F.one_hot(sequence, 5)[..., :4].to(counts.dtype).transpose(1, 2)
        h = F.relu(F.conv1d(x, torch.cat([self.first, self.first.flip(1, 2)]), padding=7))
        for i, weight in enumerate(self.weights):
            a, b = weight.chunk(2, 1)
            both = torch.cat([weight, torch.cat([b, a], 1).flip(2)])
            y = F.conv1d(F.relu(h), both, padding=2**i, dilation=2**i)
            y = y * torch.rsqrt(y.square().mean(1, keepdim=True) + 1e-5)
            h = h + y * self.scale[i].repeat(2)[:, None]
        plus, minus = h.chunk(2, 1)
        logits = torch.stack([self.profile(plus)[:, 0], self.profile(minus.flip(2))[:, 0].flip(1)], 1)
        log_p = logits.flatten(1).log_softmax(1).view_as(logits)
        total = self.total((plus + minus).mean(2)).squeeze(1)
        seen = counts.sum((1, 2))
        return -(counts * log_p).sum((1, 2)) / seen.clamp(min=1), (total - torch.log1p(seen)).square()


def both_strands(place: Place) -> Made:
    b, n, width = place.size(4, 32), place.size(200, 1024), place.size(12, 64)
    return BothStrands(width, 4).to(place.device), (place.randint(5, b, n), place.randint(6, b, 2, n).float())


ROWS: tuple[Row, ...] = (
    Row("program/kmer_spectrum", kmers),
    Row("program/minimiser_chains", chains),
    Row("program/suffix_ranks", suffixes),
    Row("program/backward_search", searched_reads),
    Row("program/piled_bases", pile),
    Row("program/copied_haplotypes", haplotypes),
    Row("program/paired_reads", paired_reads, "training"),
    Row("program/methyl_marks", methyl_marks, "training"),
    Row("program/ancestry_mixtures", ancestry, "training"),
    Row("program/both_strand_profiles", both_strands, "training"),
)
