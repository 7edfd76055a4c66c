"""What games and renderers compute: occlusion, shadows, histories of frames, lights, paths, crowds, water, terrain."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def view_positions(depth: Tensor) -> Tensor:
    h, w = depth.shape
    y, x = torch.meshgrid(
        torch.linspace(-1, 1, h, device=depth.device, dtype=depth.dtype),
        torch.linspace(-1, 1, w, device=depth.device, dtype=depth.dtype),
        indexing="ij",
    )
    return torch.stack([x * depth, y * depth, depth], dim=-1)


def ambient_occlusion(depth: Tensor, kernel: Tensor, turn: Tensor, radius: float) -> Tensor:
    """Screen space: samples of a turned hemisphere projected back onto the depth buffer, range checked, blurred."""
    position = view_positions(depth)
    dx = F.pad(position[:, 2:] - position[:, :-2], (0, 0, 1, 1))
    dy = F.pad(position[2:] - position[:-2], (0, 0, 0, 0, 1, 1))
    normal = F.normalize(torch.cross(dy, dx, dim=-1), dim=-1, eps=1e-6)
    random = torch.stack([turn.cos(), turn.sin(), torch.zeros_like(turn)], dim=-1)
    tangent = F.normalize(random - normal * (random * normal).sum(-1, keepdim=True), dim=-1)
    frame = torch.stack([tangent, torch.cross(normal, tangent, dim=-1), normal], dim=-1)
    sample = position[:, :, None] + radius * torch.einsum("hwij,sj->hwsi", frame, kernel)
    grid = sample[..., :2] / sample[..., 2:].clamp(min=1e-3)
    h, w = depth.shape
    stored = F.grid_sample(depth[None, None], grid.reshape(1, h, -1, 2), align_corners=True).view(h, w, -1)
    near = (radius / (depth[..., None] - stored).abs().clamp(min=1e-4)).clamp(0, 1)
    near = near * near * (3 - 2 * near)
    hidden = ((stored <= sample[..., 2] - 0.025).to(depth.dtype) * near).mean(-1)
    return F.avg_pool2d(F.pad(1 - hidden[None, None], (2, 1, 2, 1), mode="replicate"), 4, stride=1)[0, 0]


def occlusion(place: Place) -> Made:
    h, w, n = place.size(64, 1080), place.size(96, 1920), place.size(8, 16)
    depth = 3 + F.interpolate(place.rand(1, 1, 6, 8), (h, w), mode="bicubic")[0, 0]
    kernel = F.normalize(place.randn(n, 3), dim=1) * place.rand(n, 1)
    kernel[:, 2].abs_()
    return ambient_occlusion, (depth.contiguous(), kernel, 2 * math.pi * place.rand(h, w), 0.5)


def accumulated_frame(frame: Tensor, history: Tensor, motion: Tensor, depth: Tensor, blend: float) -> Tensor:
    """Temporal antialiasing: history along the nearest neighbour's motion, clipped to 3 x 3 variances in YCoCg."""
    h, w = frame.shape[-2:]
    r, g, bl = frame.unbind(1)
    colour = torch.stack([r / 4 + g / 2 + bl / 4, r / 2 - bl / 2, -r / 4 + g / 2 - bl / 4], dim=1)
    r, g, bl = history.unbind(1)
    past = torch.stack([r / 4 + g / 2 + bl / 4, r / 2 - bl / 2, -r / 4 + g / 2 - bl / 4], dim=1)
    _, nearest = F.max_pool2d(-depth, 3, stride=1, padding=1, return_indices=True)
    moved = motion.flatten(2).gather(2, nearest.flatten(2).expand(-1, 2, -1)).view_as(motion)
    base = F.affine_grid(torch.eye(2, 3, device=frame.device, dtype=frame.dtype)[None], [1, 1, h, w], False)
    grid = base - moved.permute(0, 2, 3, 1)
    past = F.grid_sample(past, grid, mode="bicubic", padding_mode="border", align_corners=False)
    inside = (grid.abs() <= 1).all(-1)[:, None]
    padded = F.pad(colour, (1, 1, 1, 1), mode="replicate")
    mean = F.avg_pool2d(padded, 3, stride=1)
    deviation = (F.avg_pool2d(padded.square(), 3, stride=1) - mean.square()).clamp(min=0).sqrt()
    past = torch.maximum(torch.minimum(past, mean + 1.25 * deviation), mean - 1.25 * deviation)
    new_weight = blend / (1 + colour[:, :1].clamp(min=0))
    old_weight = (1 - blend) / (1 + past[:, :1].clamp(min=0)) * inside
    y, co, cg = ((new_weight * colour + old_weight * past) / (new_weight + old_weight)).unbind(1)
    return torch.stack([y + co - cg, y + cg, y - co - cg], dim=1)


def antialiasing(place: Place) -> Made:
    h, w = place.size(96, 1080), place.size(128, 1920)
    motion = 0.02 * F.interpolate(place.randn(1, 2, 8, 8), (h, w), mode="bilinear")
    return accumulated_frame, (
        place.rand(1, 3, h, w),
        place.rand(1, 3, h, w),
        motion,
        1 + place.rand(1, 1, h, w),
        0.1,
    )


def soft_shadows(points: Tensor, normal: Tensor, light: Tensor, shadow: Tensor, disc: Tensor) -> Tensor:
    """Percentage closer: a search for blockers, a penumbra as wide as they are far, comparisons over a disc."""
    clip = torch.cat([points, torch.ones_like(points[:, :1])], dim=1) @ light.T
    ndc = clip[:, :3] / clip[:, 3:]
    size = shadow.size(0)

    def stored(uv: Tensor) -> Tensor:
        texel = ((uv * 0.5 + 0.5) * size).long().clamp(0, size - 1)
        return shadow[texel[..., 1], texel[..., 0]]

    bias = (0.005 * (1 - normal[:, 2])).clamp(min=0.0005)
    depth = (ndc[:, 2] - bias)[:, None]
    searched = stored(ndc[:, None, :2] + 0.02 * disc)
    blocking = searched < depth
    count = blocking.sum(1)
    blocker = torch.where(blocking, searched, 0).sum(1) / count.clamp(min=1)
    penumbra = ((depth[:, 0] - blocker) / blocker.clamp(min=1e-3) * 0.1).clamp(0.002, 0.05)
    lit = (stored(ndc[:, None, :2] + penumbra[:, None, None] * disc) >= depth).to(points.dtype).mean(1)
    return torch.where(count == 0, 1.0, lit) * normal[:, 2].clamp(min=0)


def penumbrae(place: Place) -> Made:
    n, size, taps = place.size(5000, 2_000_000), place.size(256, 2048), 16
    light = torch.eye(4)
    light[3, 2] = 0.2
    angle = 2.4 * torch.arange(taps)
    disc = torch.stack([angle.cos(), angle.sin()], 1) * ((torch.arange(taps) + 0.5) / taps).sqrt()[:, None]
    shadow = F.interpolate(place.rand(1, 1, 16, 16), (size, size), mode="bilinear")[0, 0]
    points = 2 * place.rand(n, 3) - 1
    points[:, 2] = 0.2 + 0.7 * place.rand(n)
    return soft_shadows, (
        points,
        F.normalize(place.randn(n, 3), dim=1),
        light.to(place.device),
        shadow.contiguous(),
        disc.to(place.device),
    )


def jump_flooding(seed: Tensor) -> tuple[Tensor, Tensor]:
    """Voronoi cells and distances of pixels (Rong and Tan, 2006): neighbours at halving steps offer their seed."""
    h, w = seed.shape
    y = torch.arange(h, device=seed.device)[:, None].expand(h, w)
    x = torch.arange(w, device=seed.device).expand(h, w)
    far = torch.full_like(y, -10 * (h + w))
    sy, sx = torch.where(seed, y, far), torch.where(seed, x, far)
    step = max(h, w) // 2
    while step >= 1:
        best = (sy - y) ** 2 + (sx - x) ** 2
        ny, nx = sy, sx
        for dy in (-step, 0, step):
            for dx in (-step, 0, step):
                oy = F.pad(sy, (step, step, step, step), value=-10 * (h + w))
                ox = F.pad(sx, (step, step, step, step), value=-10 * (h + w))
                cy = oy[step + dy : step + dy + h, step + dx : step + dx + w]
                cx = ox[step + dy : step + dy + h, step + dx : step + dx + w]
                d = (cy - y) ** 2 + (cx - x) ** 2
                closer = d < best
                best, ny, nx = torch.where(closer, d, best), torch.where(closer, cy, ny), torch.where(closer, cx, nx)
        sy, sx = ny, nx
        step //= 2
    return best, sy * w + sx


def voronoi_pixels(place: Place) -> Made:
    n = place.size(64, 1024)
    seed = place.rand(n, n) < 0.01
    seed[n // 2, n // 2] = True
    return jump_flooding, (seed,)


def cornell_paths(origin: Tensor, direction: Tensor, walls: Tensor, colour: Tensor, draws: Tensor) -> Tensor:
    """A box of coloured walls traced with bounces by a cosine's law, a lamp in the ceiling, Russian roulette."""
    throughput, radiance = torch.ones_like(origin), torch.zeros_like(origin)
    alive = torch.ones_like(origin[:, 0], dtype=torch.bool)
    for u in draws.unbind(0):
        denominator = direction @ walls[:, :3].T
        t = (walls[:, 3] - origin @ walls[:, :3].T) / denominator
        t = torch.where((t > 1e-4) & (denominator < 0), t, torch.inf)
        nearest, wall = t.min(1)
        alive = alive & nearest.isfinite()
        origin = origin + torch.where(alive, nearest, 0)[:, None] * direction
        normal = walls[wall, :3]
        lamp = (wall == 2) & (origin[:, :2].abs() < 0.4).all(1)
        radiance = radiance + torch.where((alive & lamp)[:, None], 12 * throughput, 0)
        alive = alive & ~lamp
        throughput = throughput * colour[wall]
        survive = throughput.amax(1).clamp(0.1, 0.95)
        alive = alive & (u[:, 0] < survive)
        throughput = throughput / survive[:, None]
        phi, radius = 2 * math.pi * u[:, 1], u[:, 2].sqrt()
        sign = torch.where(normal[:, 2] >= 0, 1.0, -1.0)
        a = -1 / (sign + normal[:, 2])
        b = normal[:, 0] * normal[:, 1] * a
        s = torch.stack([1 + sign * normal[:, 0] ** 2 * a, sign * b, -sign * normal[:, 0]], dim=1)
        v = torch.stack([b, sign + normal[:, 1] ** 2 * a, -normal[:, 1]], dim=1)
        up = (1 - u[:, 2]).clamp(min=0).sqrt()
        direction = (radius * phi.cos())[:, None] * s + (radius * phi.sin())[:, None] * v + up[:, None] * normal
    return radiance


def box_of_walls(place: Place) -> Made:
    n, bounces = place.size(4000, 2_000_000), place.size(4, 6)
    normals = torch.tensor([[1.0, 0, 0], [-1, 0, 0], [0, 0, -1], [0, 0, 1], [0, 1, 0], [0, -1, 0]])
    walls = torch.cat([normals, torch.full((6, 1), -1.0)], dim=1).to(place.device)
    colour = torch.tensor([[0.7, 0.1, 0.1], [0.1, 0.7, 0.1], [0.8, 0.8, 0.8], [0.8, 0.8, 0.8], [0.6, 0.6, 0.8]])
    colour = torch.cat([colour, colour[-1:]]).to(place.device)
    direction = F.normalize(place.randn(n, 3), dim=1)
    return cornell_paths, (0.2 * place.randn(n, 3).clamp(-3, 3), direction, walls, colour, place.rand(bounces, n, 3))


def light_reservoirs(
    position: Tensor, normal: Tensor, light: Tensor, power: Tensor, index: Tensor, draw: Tensor, around: Tensor
) -> tuple[Tensor, Tensor]:
    """Resampled importance of lights (Bitterli et al., 2020): candidates stream into reservoirs, neighbours join."""

    def target(p: Tensor, n: Tensor, k: Tensor) -> Tensor:
        to = light[k] - p
        d2 = to.square().sum(-1).clamp(min=1e-2)
        return power[k] * (n * to).sum(-1).clamp(min=0) / (d2 * d2.sqrt())

    chosen = index[0]
    total = torch.zeros_like(power[chosen])
    for k, u in zip(index, draw, strict=True):
        weight = target(position, normal, k) * light.size(0)
        total = total + weight
        chosen = torch.where(u * total < weight, k, chosen)
    p = target(position, normal, chosen)
    scale = torch.where(p > 0, total / (index.size(0) * p.clamp(min=1e-12)), 0)
    merged, count, final = p * scale * index.size(0), torch.full_like(p, index.size(0)), chosen
    for offset, u in zip(around.tolist(), draw, strict=False):
        k, w = chosen.roll(offset, (0, 1)), scale.roll(offset, (0, 1))
        weight = target(position, normal, k) * w * index.size(0)
        merged = merged + weight
        count = count + index.size(0)
        final = torch.where(u * merged < weight, k, final)
    p = target(position, normal, final)
    return final, p * torch.where(p > 0, merged / (count * p.clamp(min=1e-12)), 0)


def many_lights(place: Place) -> Made:
    h, w, lights, m = place.size(48, 1080), place.size(64, 1920), place.size(200, 20_000), place.size(6, 16)
    normal = F.normalize(place.randn(h, w, 3), dim=-1)
    around = torch.tensor([[1, 2], [-3, 1], [2, -2], [0, 5]])
    return light_reservoirs, (
        place.randn(h, w, 3),
        normal,
        3 * place.randn(lights, 3),
        place.rand(lights),
        place.randint(lights, m, h, w),
        place.rand(m, h, w),
        around,
    )


def holes_denoised(colour: Tensor, albedo: Tensor, normal: Tensor, depth: Tensor, levels: int) -> Tensor:
    """An edge-avoiding wavelet (Dammertz et al., 2010): 5 x 5 taps with holes, weights of normals, depths and light."""
    taps = (1 / 16, 1 / 4, 3 / 8, 1 / 4, 1 / 16)
    light = colour / albedo.clamp(min=1e-2)
    for level in range(levels):
        hole = 1 << level
        brightness = light.mean(1, keepdim=True)
        total, weights = torch.zeros_like(light), torch.zeros_like(brightness)
        for i, a in enumerate(taps):
            for j, b in enumerate(taps):
                shift = ((i - 2) * hole, (j - 2) * hole)

                def moved(t: Tensor, shift: tuple[int, int] = shift) -> Tensor:
                    return t.roll(shift, dims=(2, 3))

                facing = (normal * moved(normal)).sum(1, keepdim=True).clamp(min=0).pow(32)
                away = (depth - moved(depth)).abs() / (0.1 * hole)
                contrast = (brightness - moved(brightness)).abs() / (4.0 / hole)
                weight = a * b * facing * torch.exp(-away - contrast)
                total, weights = total + weight * moved(light), weights + weight
        light = total / weights.clamp(min=1e-6)
    return light * albedo


def path_denoiser(place: Place) -> Made:
    h, w = place.size(40, 720), place.size(48, 1280)
    normal = F.normalize(F.interpolate(place.randn(1, 3, 6, 6), (h, w), mode="bilinear"), dim=1)
    return holes_denoised, (
        place.rand(1, 3, h, w) * 4,
        0.2 + 0.8 * place.rand(1, 3, h, w),
        normal,
        1 + place.rand(1, 1, h, w),
        place.size(2, 4),
    )


def impulse_boxes(x: Tensor, v: Tensor, angle: Tensor, spin: Tensor, half: Tensor, dt: float, rounds: int) -> Tensor:
    """Boxes that fall on a floor: corners in contact, clamped impulses with friction in rounds, Baumgarte's push."""
    v = v + torch.tensor([0.0, -9.81 * dt], device=x.device, dtype=x.dtype)
    mass = 4 * half[:, 0] * half[:, 1]
    inertia = mass * half.square().sum(1) / 3
    signs = torch.tensor([[1.0, 1], [-1, 1], [-1, -1], [1, -1]], device=x.device, dtype=x.dtype)
    c, s = angle.cos(), angle.sin()
    rotation = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)
    r = (signs * half[:, None]) @ rotation.transpose(1, 2)
    depth = -(x[:, None, 1] + r[..., 1])
    touching = depth > 0
    bias = 0.2 / dt * (depth - 0.01).clamp(min=0)
    normal_mass = 1 / (1 / mass[:, None] + r[..., 0].square() / inertia[:, None])
    tangent_mass = 1 / (1 / mass[:, None] + r[..., 1].square() / inertia[:, None])
    pn, pt = torch.zeros_like(depth), torch.zeros_like(depth)
    for _ in range(rounds):
        for k in range(4):
            vy = v[:, 1] + spin * r[:, k, 0]
            new = torch.where(touching[:, k], (pn[:, k] + normal_mass[:, k] * (bias[:, k] - vy)).clamp(min=0), 0)
            jn = new - pn[:, k]
            pn[:, k] = new
            v = v + torch.stack([torch.zeros_like(jn), jn / mass], dim=1)
            spin = spin + jn * r[:, k, 0] / inertia
            vx = v[:, 0] - spin * r[:, k, 1]
            limit = 0.5 * pn[:, k]
            new = torch.clamp(pt[:, k] - tangent_mass[:, k] * vx, -limit, limit)
            jt = new - pt[:, k]
            pt[:, k] = new
            v = v + torch.stack([jt / mass, torch.zeros_like(jt)], dim=1)
            spin = spin - jt * r[:, k, 1] / inertia
    return torch.cat([x + dt * v, v, (angle + dt * spin)[:, None], spin[:, None], pn], dim=1)


def falling_boxes(place: Place) -> Made:
    n = place.size(2000, 500_000)
    x = torch.stack([10 * place.rand(n), 0.5 * place.rand(n)], 1)
    return impulse_boxes, (
        x,
        place.randn(n, 2),
        3 * place.rand(n),
        place.randn(n),
        0.3 + 0.4 * place.rand(n, 2),
        1 / 60,
        place.size(3, 4),
    )


def reciprocal_crowd(p: Tensor, v: Tensor, goal: Tensor, candidates: Tensor, horizon: float) -> tuple[Tensor, Tensor]:
    """Reciprocal velocity obstacles (van den Berg et al., 2008): of sampled velocities, which delays collisions."""
    preferred = goal - p
    preferred = preferred * (1.3 / preferred.norm(dim=1, keepdim=True).clamp(min=1.3))
    options = torch.cat([preferred[:, None], preferred[:, None] + candidates], dim=1)
    relative = 2 * options[:, :, None] - v[:, None, None] - v
    apart = (p - p[:, None])[:, None]
    b = (relative * apart).sum(-1)
    a = relative.square().sum(-1)
    c = apart.square().sum(-1) - 0.36
    inside = b * b - a * c
    hit = (b - inside.clamp(min=0).sqrt()) / a.clamp(min=1e-6)
    time = torch.where((inside > 0) & (hit > 0), hit, torch.inf)
    time = torch.where(c < 0, 0.1, time)
    time = torch.where(torch.eye(len(p), device=p.device, dtype=torch.bool)[:, None], torch.inf, time)
    soonest = time.amin(-1)
    penalty = horizon / soonest.clamp(min=1e-2) + (options - preferred[:, None]).norm(dim=-1)
    cost, best = penalty.min(1)
    chosen = options.gather(1, best[:, None, None].expand(-1, 1, 2)).squeeze(1)
    return p + 0.1 * chosen, cost


def crowd(place: Place) -> Made:
    n, k = place.size(96, 2048), place.size(16, 64)
    p = 8 * place.rand(n, 2)
    return reciprocal_crowd, (p, 0.5 * place.randn(n, 2), -p, 0.6 * place.randn(n, k, 2), 2.0)


def matched_motion(
    query: Tensor, features: Tensor, clip: Tensor, current: Tensor, poses: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Clavet, 2016: the frame whose weighted, normalised features lie nearest; transitions inertialised by a spring."""
    mean, std = features.mean(0), features.std(0).clamp(min=1e-4)
    weight = torch.tensor([1.0, 0.8, 1.5], device=query.device).repeat_interleave(features.size(1) // 3)
    database, wanted = (features - mean) / std * weight, (query - mean) / std * weight
    cost = torch.cdist(wanted, database).square()
    same = clip[None] == clip[current][:, None]
    end = F.pad(clip[1:] != clip[:-1], (0, 1), value=True)
    cost = torch.where(end, torch.inf, torch.where(same, 0.9 * cost, cost))
    best_cost, best = cost.min(1)
    jump = best_cost < 0.8 * cost.gather(1, current[:, None]).squeeze(1)
    frame = torch.where(jump, best, current + 1)
    difference = torch.where(jump[:, None, None], poses[current] - poses[frame] + offset, offset)
    decayed = difference * math.exp(-4.0 / 60) * (1 + 4.0 / 60)
    return frame, poses[frame] + decayed, decayed


def motions(place: Place) -> Made:
    characters, frames, joints = place.size(16, 1024), place.size(2000, 60_000), place.size(12, 24)
    clip = torch.arange(frames, device=place.device) // 200
    current = place.randint(frames - 201, characters)
    poses = place.randn(frames, joints, 4)
    offset = 0.1 * place.randn(characters, joints, 4)
    return matched_motion, (place.randn(characters, 27), place.randn(frames, 27), clip, current, poses, offset)


def droplet_erosion(height: Tensor, start: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Drops run down a terrain, dig where they are quick and leave sediment where they slow; all drops at once."""
    h, w = height.shape
    position, direction = start, torch.zeros_like(start)
    speed, water, sediment = (torch.full_like(start[:, 0], value) for value in (1.0, 1.0, 0.0))
    for _ in range(steps):
        cell = position.long()
        y, x = cell[:, 0].clamp(0, h - 2), cell[:, 1].clamp(0, w - 2)
        fy, fx = position[:, 0] - y, position[:, 1] - x
        nw, ne, sw, se = height[y, x], height[y, x + 1], height[y + 1, x], height[y + 1, x + 1]
        gradient = torch.stack([(sw - nw) * (1 - fx) + (se - ne) * fx, (ne - nw) * (1 - fy) + (se - sw) * fy], 1)
        old = nw * (1 - fx) * (1 - fy) + ne * fx * (1 - fy) + sw * (1 - fx) * fy + se * fx * fy
        direction = F.normalize(0.3 * direction - 0.7 * gradient, dim=1, eps=1e-6)
        position = torch.minimum((position + direction).clamp(min=0), position.new_tensor([h - 1.01, w - 1.01]))
        cy, cx = position[:, 0].long(), position[:, 1].long()
        gy, gx = position[:, 0] - cy, position[:, 1] - cx
        upper = torch.lerp(height[cy, cx], height[cy, cx + 1], gx)
        new = torch.lerp(upper, torch.lerp(height[cy + 1, cx], height[cy + 1, cx + 1], gx), gy)
        drop = new - old
        capacity = (-drop).clamp(min=0.01) * speed * water * 4
        deposit = torch.where(drop > 0, torch.minimum(drop, sediment), 0.3 * (sediment - capacity).clamp(min=0))
        dig = torch.minimum(0.3 * (capacity - sediment).clamp(min=0), (-drop).clamp(min=0))
        change = deposit - dig
        sediment = sediment - change
        index = torch.cat([y * w + x, y * w + x + 1, (y + 1) * w + x, (y + 1) * w + x + 1])
        share = torch.cat([(1 - fx) * (1 - fy), fx * (1 - fy), (1 - fx) * fy, fx * fy])
        height = height.flatten().index_add(0, index, change.repeat(4) * share).view(h, w)
        speed = (speed.square() - 4 * drop).clamp(min=0).sqrt()
        water = water * 0.99
    return height, sediment


def eroded_terrain(place: Place) -> Made:
    n, drops = place.size(64, 1024), place.size(1000, 200_000)
    height = 8 * F.interpolate(place.rand(1, 1, 9, 9), (n, n), mode="bicubic")[0, 0]
    return droplet_erosion, (height.contiguous(), place.rand(drops, 2) * (n - 2), place.size(4, 8))


def ocean_surface(noise: Tensor, time: Tensor, wind: float, length: float) -> tuple[Tensor, Tensor, Tensor]:
    """Tessendorf, 2001: JONSWAP's spectrum, waves in time, heights, choppy displacements, slopes, foam by Jacobian."""
    n = noise.size(0)
    k = 2 * math.pi / length * torch.fft.fftfreq(n, 1 / n, device=noise.device, dtype=noise.dtype)
    kx, ky = k[None, :], k[:, None]
    norm = torch.sqrt(kx**2 + ky**2).clamp(min=1e-4)
    omega = torch.sqrt(9.81 * norm)
    peak = 22 * (9.81**2 / (wind * 1e5)) ** (1 / 3)
    sigma = torch.where(omega <= peak, 0.07, 0.09)
    bump = torch.exp(-((omega - peak) ** 2) / (2 * (sigma * peak) ** 2))
    spectrum = 0.01 * 9.81**2 / omega**5 * torch.exp(-1.25 * (peak / omega) ** 4) * 3.3**bump
    spread = (kx / norm).clamp(min=0) ** 2 * 2 / math.pi
    amplitude = torch.sqrt(spectrum * spread * 9.81 / (2 * omega * norm)) * (2 * math.pi / length)
    h0 = torch.complex(noise[..., 0], noise[..., 1]) * amplitude
    mirrored = torch.roll(h0.flip(0, 1), (1, 1), (0, 1)).conj()
    phase = torch.polar(torch.ones_like(omega), omega * time)
    h = h0 * phase + mirrored * phase.conj()
    parts = torch.stack([h, -1j * kx / norm * h, -1j * ky / norm * h, 1j * kx * h, 1j * ky * h])
    fields = torch.fft.ifft2(parts).real * n * n
    jacobian = torch.gradient(fields[1], dim=1)[0] * torch.gradient(fields[2], dim=0)[0]
    return fields[:3], F.normalize(torch.stack([-fields[3], -fields[4], torch.ones_like(fields[0])]), dim=0), jacobian


def ocean(place: Place) -> Made:
    n = place.size(64, 1024)
    return ocean_surface, (place.randn(n, n, 2), torch.tensor(3.7, device=place.device), 12.0, 200.0)


class SphericalLobes(nn.Module):
    """An environment as spherical Gaussians: lobes' axes, sharpness and colours; lit diffusely in closed form."""

    def __init__(self, lobes: int) -> None:
        super().__init__()
        self.axis = nn.Parameter(torch.randn(lobes, 3))
        self.sharpness = nn.Parameter(torch.full((lobes,), 2.0))
        self.colour = nn.Parameter(torch.rand(lobes, 3))

    def forward(self, directions: Tensor, image: Tensor, normals: Tensor) -> tuple[Tensor, Tensor]:
        axis, sharpness, colour = F.normalize(self.axis, dim=-1), self.sharpness.exp(), F.softplus(self.colour)
        lobes = torch.exp(sharpness * (directions @ axis.T - 1))
        loss = (torch.log1p(lobes @ colour) - torch.log1p(image)).square().mean()
        cosine = normals @ axis.T
        expm = torch.exp(-sharpness)
        irradiance = 2 * math.pi / sharpness * (1 - expm**2) * (0.36 * cosine + 1 / (4 * 0.36)).clamp(min=0)
        return loss, (irradiance @ colour) / math.pi


def lobes_of_light(place: Place) -> Made:
    n, m = place.size(2000, 400_000), place.size(500, 100_000)
    return SphericalLobes(place.size(24, 64)).to(place.device), (
        F.normalize(place.randn(n, 3), dim=1),
        5 * place.rand(n, 3).pow(4),
        F.normalize(place.randn(m, 3), dim=1),
    )


class TexturePyramid(nn.Module):
    """A texture learnt from views: mip levels by averages, trilinear look-ups by footprint, a prior on smoothness."""

    def __init__(self, side: int, levels: int) -> None:
        super().__init__()
        self.texture = nn.Parameter(torch.rand(1, 3, side, side))
        self.levels = levels

    def forward(self, uv: Tensor, footprint: Tensor, shading: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        level = torch.log2(footprint * self.texture.size(-1)).clamp(0, self.levels - 1.001)
        mips = [self.texture]
        for _ in range(self.levels - 1):
            mips.append(F.avg_pool2d(mips[-1], 2))
        colour = torch.zeros_like(seen)
        for i, mip in enumerate(mips):
            weight = (1 - (level - i).abs()).clamp(min=0)
            looked = F.grid_sample(mip, 2 * uv[None, None] - 1, padding_mode="reflection", align_corners=False)
            colour = colour + weight[:, None] * looked[0, :, 0].T
        rows, columns = self.texture.diff(dim=2), self.texture.diff(dim=3)
        return F.l1_loss(colour * shading, seen), 1e-3 * (rows.abs().mean() + columns.abs().mean())


def learnt_texture(place: Place) -> Made:
    n = place.size(4000, 1_000_000)
    return TexturePyramid(place.size(64, 1024), 4).to(place.device), (
        place.rand(n, 2),
        0.001 + 0.1 * place.rand(n).square(),
        0.5 + 0.5 * place.rand(n, 1),
        place.rand(n, 3),
    )


def reaching_chains(joints: Tensor, target: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """FABRIK (Aristidou and Lasenby, 2011): chains pulled from the tip and then from the root, lengths kept."""
    lengths = (joints[:, 1:] - joints[:, :-1]).norm(dim=-1, keepdim=True)
    root, n = joints[:, 0], joints.size(1)
    points = list(joints.unbind(1))
    for _ in range(rounds):
        points[-1] = target
        for i in range(n - 2, -1, -1):
            points[i] = points[i + 1] + F.normalize(points[i] - points[i + 1], dim=-1) * lengths[:, i]
        points[0] = root
        for i in range(1, n):
            points[i] = points[i - 1] + F.normalize(points[i] - points[i - 1], dim=-1) * lengths[:, i - 1]
    chain = torch.stack(points, dim=1)
    return chain, (chain[:, -1] - target).norm(dim=-1)


def tentacles(place: Place) -> Made:
    n, bones = place.size(1000, 200_000), place.size(6, 8)
    joints = torch.cat([place.randn(n, 1, 3), 0.5 * place.randn(n, bones, 3)], dim=1).cumsum(1)
    return reaching_chains, (joints, place.randn(n, 3), place.size(3, 4))


ROWS: tuple[Row, ...] = (
    Row("program/screen_space_occlusion", occlusion),
    Row("program/temporal_antialiasing", antialiasing),
    Row("program/percentage_closer_shadows", penumbrae),
    Row("program/jump_flooded_cells", voronoi_pixels),
    Row("program/paths_in_a_box", box_of_walls),
    Row("program/light_reservoirs", many_lights),
    Row("program/edge_avoiding_wavelet", path_denoiser),
    Row("program/impulse_boxes", falling_boxes),
    Row("program/reciprocal_crowd", crowd),
    Row("program/matched_motion", motions),
    Row("program/droplet_erosion", eroded_terrain),
    Row("program/ocean_surface", ocean),
    Row("program/spherical_gaussian_lobes", lobes_of_light, "training"),
    Row("program/texture_pyramid_fit", learnt_texture, "training"),
    Row("program/reaching_chains", tentacles),
)
