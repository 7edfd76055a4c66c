"""Text and print: outlines of letters, lines of paragraphs, encodings, codes that repair, palettes, strokes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def glyph_coverage(curves: Tensor, size: int, pieces: int = 8) -> tuple[Tensor, Tensor]:
    """Signed areas (as font-rs does): quadratic curves cut to lines that add to cells they enter, one running sum."""
    batch = curves.size(0)
    t = torch.linspace(0, 1, pieces + 1, dtype=curves.dtype, device=curves.device)[:, None]
    a, b, c = curves[:, :, None, 0], curves[:, :, None, 1], curves[:, :, None, 2]
    points = ((1 - t).square() * a + 2 * t * (1 - t) * b + t.square() * c).clamp(0.01, size - 1.01)
    x0, y0 = points[:, :, :-1, 0].flatten(1), points[:, :, :-1, 1].flatten(1)
    x1, y1 = points[:, :, 1:, 0].flatten(1), points[:, :, 1:, 1].flatten(1)
    down = y0 > y1
    direction = torch.where(down, -1.0, 1.0)
    x0, x1, y0, y1 = torch.where(down, x1, x0), torch.where(down, x0, x1), torch.minimum(y0, y1), torch.maximum(y0, y1)
    slope = (x1 - x0) / (y1 - y0).clamp(min=1e-6)
    cells = curves.new_zeros(batch, size * size + 2)
    first = y0.floor().long()
    for k in range(4):
        row = (first + k).clamp(max=size - 1)
        top, bottom = torch.maximum(y0, row.to(y0.dtype)), torch.minimum(y1, row + 1.0)
        height = (bottom - top).clamp(min=0) * direction
        middle = x0 + slope * (0.5 * (top + bottom) - y0)
        column = middle.floor().clamp(0, size - 2)
        part = middle - column
        at = row * size + column.long()
        cells.scatter_add_(1, at, height * (1 - part))
        cells.scatter_add_(1, at + 1, height * part)
    coverage = cells[:, :-2].cumsum(1).abs().clamp(max=1.0).view(batch, size, size)
    return 255 * coverage, coverage.sum(dim=(1, 2))


def glyphs(place: Place) -> Made:
    batch, curves, size = place.size(24, 2048), 16, place.size(32, 64)
    angle = 2 * math.pi * torch.arange(2 * curves, device=place.device) / (2 * curves)
    radius = size * (0.2 + 0.25 * place.rand(batch, 2 * curves))
    points = size / 2 + torch.stack([radius * angle.cos(), radius * angle.sin()], -1)
    starts = points[:, ::2]
    return glyph_coverage, (torch.stack([starts, points[:, 1::2], starts.roll(-1, 1)], 2), size)


def broken_lines(widths: Tensor, penalty: Tensor, measure: float, window: int) -> tuple[Tensor, Tensor, Tensor]:
    """Knuth and Plass, 1981: demerits of all lines that end at each word, the best way there, breaks from the end."""
    batch, n = widths.shape
    total = F.pad((widths + 1.0).cumsum(1), (1, 0))
    cost = [torch.zeros(batch, dtype=widths.dtype, device=widths.device)]
    come = []
    for end in range(1, n + 1):
        start = max(0, end - window)
        before = torch.stack(cost[start:end], 1)
        natural = total[:, end : end + 1] - total[:, start:end] - 1
        gaps = torch.arange(end - start - 1, -1, -1, device=widths.device)
        missing = measure - natural
        ratio = torch.where(missing < 0, missing / (0.33 * gaps).clamp(min=0.1), missing / (0.5 * gaps).clamp(min=0.1))
        bad = 100 * ratio.abs().clamp(max=10).pow(3)
        demerits = (1 + bad).square() + penalty[:, end - 1 : end].square()
        demerits = torch.where(ratio < -1, 1e9 + 1e6 * natural, demerits)
        if end == n:
            demerits = torch.where(missing >= 0, 0.0, demerits)
        best, which = (before + demerits).min(1)
        cost.append(best)
        come.append(which + start)
    back = torch.stack(come, 1)
    at = torch.full((batch,), n, dtype=torch.int64, device=widths.device)
    breaks = []
    for _ in range(n // 4):
        at = torch.where(at > 0, back.gather(1, (at - 1).clamp(min=0)[:, None]).squeeze(1), at)
        breaks.append(at)
    lines = torch.stack(breaks, 1)
    return cost[-1], lines, (lines > 0).sum(1) + 1


def paragraphs(place: Place) -> Made:
    b, words = place.size(64, 16_384), place.size(80, 48)
    return broken_lines, ((1 + place.randint(9, b, words)).float(), 50.0 * place.randint(2, b, words), 48.0, 16)


def utf8_code_points(data: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Bytes to code points without a loop: lengths by leading bits, payloads shifted together, errors, surrogates."""
    b = data.to(torch.int32)
    n = b.size(1)
    cont = (b & 0xC0) == 0x80
    length = torch.where(
        b < 0x80, 1, torch.where(b >> 5 == 6, 2, torch.where(b >> 4 == 14, 3, torch.where(b >> 3 == 30, 4, 0)))
    )
    following = [F.pad(b, (0, k))[:, k:] for k in range(1, 4)]
    run = [F.pad(cont, (0, k))[:, k:] for k in range(1, 4)]
    p1, p2, p3 = (f & 0x3F for f in following)
    two = ((b & 0x1F) << 6) | p1
    three = ((b & 0x0F) << 12) | (p1 << 6) | p2
    four = ((b & 0x07) << 18) | (p1 << 12) | (p2 << 6) | p3
    point = torch.where(length == 1, b, torch.where(length == 2, two, torch.where(length == 3, three, four)))
    whole = (length == 1) | ((length >= 2) & run[0] & ((length < 3) | run[1]) & ((length < 4) | run[2]))
    least = torch.where(length == 2, 0x80, torch.where(length == 3, 0x800, torch.where(length == 4, 0x10000, 0)))
    fine = whole & (point >= least) & (point <= 0x10FFFF) & ~((point >= 0xD800) & (point < 0xE000))
    point = torch.where(fine, point, 0xFFFD)
    starts = ~cont
    place = starts.cumsum(1) - 1
    out = torch.zeros(b.size(0), n + 1, dtype=torch.int32, device=b.device)
    out.scatter_(1, torch.where(starts, place, n), point)
    pairs = torch.where(point > 0xFFFF, 0xD800 + ((point - 0x10000) >> 10), point)
    return out[:, :n], starts.sum(1), (torch.where(starts, pairs, 0)).amax(1)


def utf8(place: Place) -> Made:
    b, n = place.size(16, 4096), place.size(500, 2048)
    text = "Fjörð — ήλιος, солнце, 太陽, 🌞 and the sun; "
    data = torch.tensor(list(text.encode()), dtype=torch.uint8).repeat(b * n // 40 + b)[: b * n].view(b, n)
    noise = torch.rand(b, n) < 0.01
    return utf8_code_points, (torch.where(noise, torch.randint(256, (b, n)).to(torch.uint8), data).to(place.device),)


def base64_and_sums(data: Tensor, alphabet: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Three bytes to four letters and back by arithmetic; Adler's and Fletcher's sums by weights, FNV by folds."""
    b = data.long()
    x, y, z = b.view(b.size(0), -1, 3).unbind(-1)
    word = (x << 16) | (y << 8) | z
    six = torch.stack([(word >> shift) & 63 for shift in (18, 12, 6, 0)], -1).flatten(1)
    letters = alphabet[six]
    c = letters.long()
    value = torch.where(
        c >= 97, c - 71, torch.where(c >= 65, c - 65, torch.where(c >= 48, c + 4, torch.where(c == 43, 62, 63)))
    )
    p, q, r, s = value.view(b.size(0), -1, 4).unbind(-1)
    joined = (p << 18) | (q << 12) | (r << 6) | s
    back = torch.stack([joined >> 16, (joined >> 8) & 255, joined & 255], -1).flatten(1)
    n = b.size(1)
    low = (1 + b.sum(1)) % 65521
    high = (n + (b * torch.arange(n, 0, -1, device=b.device)).sum(1)) % 65521
    pairs = (b[:, ::2] << 8) | b[:, 1::2]
    fletcher = (pairs.cumsum(1) % 65535).sum(1) % 65535
    fold = pairs
    while fold.size(1) > 1:
        half = fold.size(1) // 2
        fold = ((fold[:, :half] * 16777619) ^ fold[:, half : 2 * half]) & 0xFFFFFFFF
    sums = torch.stack([(high << 16) | low, fletcher, fold[:, 0], (back == b).all(1).long()], 1)
    return letters, back.to(torch.uint8), sums


def base64(place: Place) -> Made:
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    alphabet = torch.tensor(list(letters), dtype=torch.uint8, device=place.device)
    return base64_and_sums, (place.randint(256, place.size(20, 4096), place.size(768, 3072)).to(torch.uint8), alphabet)


def reed_solomon(received: Tensor, power: Tensor, logarithm: Tensor, checks: int) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of bytes: syndromes by Horner in GF(256), Berlekamp and Massey's polynomial, Chien's search for errors."""

    def mul(a: Tensor, b: Tensor) -> Tensor:
        product = power[(logarithm[a] + logarithm[b]) % 255]
        return torch.where((a == 0) | (b == 0), 0, product)

    batch, n = received.shape
    roots = power[torch.arange(checks, device=received.device)]
    syndrome = torch.zeros(batch, checks, dtype=torch.int64, device=received.device)
    for byte in received.unbind(1):
        syndrome = mul(syndrome, roots.expand_as(syndrome)) ^ byte[:, None]
    locator = torch.zeros(batch, checks + 1, dtype=torch.int64, device=received.device)
    locator[:, 0] = 1
    old = locator.clone()
    order = torch.zeros(batch, dtype=torch.int64, device=received.device)
    last = torch.ones_like(order)
    for k in range(checks):
        old = F.pad(old[:, :-1], (1, 0))
        discrepancy = syndrome[:, k]
        for j in range(1, k + 1):
            discrepancy = discrepancy ^ mul(locator[:, j], syndrome[:, k - j])
        inverse = power[(255 - logarithm[last]) % 255]
        scale = mul(discrepancy, inverse)
        new = locator ^ mul(scale[:, None].expand_as(old), old)
        grows = (discrepancy != 0) & (2 * order <= k)
        old = torch.where(grows[:, None], locator, old)
        last = torch.where(grows, discrepancy, last)
        order = torch.where(grows, k + 1 - order, order)
        locator = new
    at = (255 - torch.arange(n - 1, -1, -1, device=received.device)) % 255
    value = torch.zeros(batch, n, dtype=torch.int64, device=received.device)
    for j in range(checks // 2 + 1):
        value = value ^ mul(locator[:, j : j + 1].expand(-1, n), power[(at * j) % 255].expand(batch, -1))
    return syndrome, order, value == 0


def codewords(place: Place) -> Made:
    batch, n, checks = place.size(100, 16_384), place.size(60, 48), 8
    power, logarithm = torch.zeros(255, dtype=torch.int64), torch.zeros(256, dtype=torch.int64)
    x = 1
    for i in range(255):
        power[i], logarithm[x] = x, i
        x = (x << 1) ^ (0x11D if x & 0x80 else 0)
    errors = place.randint(256, batch, n) * (place.rand(batch, n) < 0.05)
    return reed_solomon, (errors, power.to(place.device), logarithm.to(place.device), checks)


def shift_register(state: Tensor, data: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Three registers that clock by majority (A5/1), a scrambler of its own output, and a xorshift beside them."""
    r1, r2, r3 = state & 0x7FFFF, (state >> 8) & 0x3FFFFF, (state >> 16) & 0x7FFFFF
    x = state | 1
    stream = torch.zeros_like(state)
    memory = torch.zeros_like(state)
    scrambled = []
    for t in range(steps):
        a, b, c = (r1 >> 8) & 1, (r2 >> 10) & 1, (r3 >> 10) & 1
        majority = (a & b) | (b & c) | (a & c)
        f1 = ((r1 >> 13) ^ (r1 >> 16) ^ (r1 >> 17) ^ (r1 >> 18)) & 1
        f2 = ((r2 >> 20) ^ (r2 >> 21)) & 1
        f3 = ((r3 >> 7) ^ (r3 >> 20) ^ (r3 >> 21) ^ (r3 >> 22)) & 1
        r1 = torch.where(a == majority, ((r1 << 1) & 0x7FFFF) | f1, r1)
        r2 = torch.where(b == majority, ((r2 << 1) & 0x3FFFFF) | f2, r2)
        r3 = torch.where(c == majority, ((r3 << 1) & 0x7FFFFF) | f3, r3)
        key = ((r1 >> 18) ^ (r2 >> 21) ^ (r3 >> 22)) & 1
        bit = ((data >> (t % 31)) & 1) ^ ((memory >> 6) & 1) ^ ((memory >> 3) & 1) ^ key
        memory = ((memory << 1) | bit) & 0x7F
        stream = ((stream << 1) | key) & 0x7FFFFFFF
        x = x ^ ((x << 13) & 0xFFFFFFFF)
        x = x ^ (x >> 17)
        x = x ^ ((x << 5) & 0xFFFFFFFF)
        scrambled.append(bit)
    return stream, torch.stack(scrambled, -1).sum(-1), x


def keystreams(place: Place) -> Made:
    n = place.size(500, 262_144)
    return shift_register, (place.randint(1 << 31, n), place.randint(1 << 31, n), place.size(48, 24))


def median_cut(pixels: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor]:
    """Heckbert, 1982: boxes of colours halved at the median of their longest side; then pixels to the nearest."""
    batch = pixels.size(0)
    boxes = pixels[:, None]
    for _ in range(depth):
        side = (boxes.amax(2) - boxes.amin(2)).argmax(-1)
        key = boxes.gather(3, side[:, :, None, None].expand(-1, -1, boxes.size(2), 1)).squeeze(-1)
        order = key.sort(dim=-1, stable=True).indices
        boxes = boxes.gather(2, order[..., None].expand(-1, -1, -1, 3))
        boxes = boxes.reshape(batch, boxes.size(1) * 2, -1, 3)
    palette = boxes.mean(2)
    for _ in range(2):
        distance = torch.cdist(pixels, palette, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = distance.argmin(-1)
        sums = torch.zeros_like(palette).scatter_add_(1, nearest[..., None].expand(-1, -1, 3), pixels)
        count = torch.zeros_like(palette[..., 0]).scatter_add_(1, nearest, torch.ones_like(pixels[..., 0]))
        palette = torch.where(count[..., None] > 0, sums / count[..., None].clamp(min=1), palette)
    error = (pixels - palette.gather(1, nearest[..., None].expand(-1, -1, 3))).square().sum(-1).mean(-1)
    return palette, count, 10 * torch.log10(1 / error)


def palettes(place: Place) -> Made:
    return median_cut, (place.rand(place.size(2, 64), place.size(2048, 16_384), 3).square(), place.size(4, 6))


def binarised_page(page: Tensor, side: int, k: float = 0.2) -> tuple[Tensor, Tensor, Tensor]:
    """Sauvola's threshold by integral images, Otsu's by histograms; profiles of rows find the lines."""
    batch, h, w = page.shape
    r = side // 2
    p = F.pad(page[:, None], [r + 1, r, r + 1, r], mode="replicate")[:, 0]

    def window(x: Tensor) -> Tensor:
        s = x.cumsum(1).cumsum(2)
        return s[:, side:, side:] - s[:, :-side, side:] - s[:, side:, :-side] + s[:, :-side, :-side]

    count = side * side
    mean, square = window(p) / count, window(p * p) / count
    deviation = (square - mean.square()).clamp(min=1e-6).sqrt()
    local = page < mean * (1 + k * (deviation / 0.5 - 1))
    level = (255 * page).long().flatten(1)
    histogram = torch.zeros(batch, 256, dtype=page.dtype, device=page.device)
    histogram.scatter_add_(1, level, torch.ones_like(page).flatten(1))
    weight = histogram.cumsum(1) / (h * w)
    moment = (histogram * torch.arange(256, device=page.device)).cumsum(1) / (h * w)
    between = (moment[:, -1:] * weight - moment).square() / (weight * (1 - weight)).clamp(min=1e-6)
    threshold = between.argmax(1)
    ink = local & (level.view_as(local) <= threshold[:, None, None] + 20)
    profile = ink.sum(2)
    text = profile > w // 20
    row = torch.arange(h, device=page.device)
    since = row - torch.where(~text, row, -1).cummax(1).values
    starts = text[:, 1:] & ~text[:, :-1]
    return ink.to(torch.uint8), torch.stack([threshold, starts.sum(1), since.amax(1)], 1), profile


def pages(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(128, 1024)
    lines = (torch.arange(n, device=place.device)[:, None] % 16 < 9) & (place.rand(b, n, n) > 0.6)
    light = 0.9 - 0.3 * torch.linspace(0, 1, n, device=place.device)
    return binarised_page, ((light * (1 - 0.8 * lines) + 0.05 * place.rand(b, n, n)).clamp(0, 0.99), 15)


class DistanceFieldText(nn.Module):
    """Chlumský's several-channel fields: the median of three decides; a field fitted to letters seen sharp."""

    def __init__(self, glyphs: int, side: int) -> None:
        super().__init__()
        self.field = nn.Parameter(0.5 + 0.1 * torch.randn(glyphs, 3, side, side))
        self.sharp = nn.Parameter(torch.tensor(4.0))

    def forward(self, target: Tensor) -> tuple[Tensor, Tensor]:
        size = target.size(-1)
        up = F.interpolate(self.field, size=(size, size), mode="bilinear", align_corners=False)
        r, g, b = up.unbind(1)
        median = torch.maximum(torch.minimum(r, g), torch.minimum(torch.maximum(r, g), b))
        t = ((median - 0.5) * self.sharp + 0.5).clamp(0.0, 1.0)
        coverage = t * t * (3 - 2 * t)
        dx, dy = median[:, :, 1:] - median[:, :, :-1], median[:, 1:] - median[:, :-1]
        slope = torch.sqrt(dx[:, 1:].square() + dy[:, :, 1:].square() + 1e-6)
        even = (slope * size / self.field.size(-1) - 0.1).square().mean((1, 2))
        return (coverage - target).square().mean((1, 2)) + 0.05 * even, coverage


def signed_distance_text(place: Place) -> Made:
    n, side, size = place.size(8, 512), place.size(16, 32), place.size(48, 128)
    target = (F.avg_pool2d(place.randn(n, 1, size + 8, size + 8), 9, stride=1)[:, 0] > 0).float()
    return DistanceFieldText(n, side).to(place.device), (target,)


class SketchMixture(nn.Module):
    """Ha and Eck, 2018 (and Graves before): pens as mixtures of correlated normals, and what a pen does next."""

    def __init__(self, width: int, mixtures: int) -> None:
        super().__init__()
        self.cell = nn.Linear(5 + width, 4 * width)
        self.head = nn.Linear(width, 6 * mixtures + 3)
        self.width = width

    def forward(self, strokes: Tensor) -> tuple[Tensor, Tensor]:
        batch, length, _ = strokes.shape
        h = c = strokes.new_zeros(batch, self.width)
        hidden = []
        for t in range(length - 1):
            i, f, g, o = self.cell(torch.cat([strokes[:, t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            hidden.append(h)
        out = self.head(torch.stack(hidden, 1))
        pen, rest = out[..., :3], out[..., 3:]
        pi, mx, my, sx, sy, rho = rest.chunk(6, -1)
        sx, sy, rho = sx.clamp(-5, 5), sy.clamp(-5, 5), 0.95 * torch.tanh(rho)
        zx = (strokes[:, 1:, :1] - mx) * torch.exp(-sx)
        zy = (strokes[:, 1:, 1:2] - my) * torch.exp(-sy)
        one = 1 - rho * rho
        square = zx * zx + zy * zy - 2 * rho * zx * zy
        log_normal = -square / (2 * one) - sx - sy - 0.5 * one.log() - math.log(2 * math.pi)
        likelihood = torch.logsumexp(F.log_softmax(pi, -1) + log_normal, -1)
        alive = 1 - strokes[:, 1:, 4]
        crossed = -(strokes[:, 1:, 2:] * F.log_softmax(pen, -1)).sum(-1)
        return -(likelihood * alive).sum(1) / length, crossed.mean(1)


def sketches(place: Place) -> Made:
    b, length, width = place.size(16, 512), place.size(24, 40), place.size(64, 512)
    pen = F.one_hot(place.randint(3, b, length), 3).float()
    return SketchMixture(width, 10).to(place.device), (torch.cat([place.randn(b, length, 2), pen], -1),)


ROWS: tuple[Row, ...] = (
    Row("program/glyph_coverage", glyphs),
    Row("program/paragraph_line_breaks", paragraphs),
    Row("program/utf8_code_points", utf8),
    Row("program/base64_and_checksums", base64),
    Row("program/reed_solomon_errors", codewords),
    Row("program/majority_clocked_registers", keystreams),
    Row("program/median_cut_palettes", palettes),
    Row("program/binarised_pages", pages),
    Row("program/distance_field_text", signed_distance_text, "training"),
    Row("program/sketch_pen_mixtures", sketches, "training"),
)
