"""Computer graphics: splats, shading, textures, meshes and noise."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def quaternion_to_matrix(q: Tensor) -> Tensor:
    """Rotations from quaternions, real part first."""
    w, x, y, z = F.normalize(q, dim=-1).unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    ]
    return torch.stack(rows, dim=-1).reshape(*q.shape[:-1], 3, 3)


def project_gaussians(
    means: Tensor, log_scales: Tensor, quaternions: Tensor, view: Tensor, focal: float = 1.2, limit: float = 1.3
) -> tuple[Tensor, Tensor, Tensor]:
    """3D Gaussian splatting's first half: centres on the screen, inverse covariances by the local affine map."""
    rotation, translation = view[:3, :3], view[:3, 3]
    m = quaternion_to_matrix(quaternions) * log_scales.exp().unsqueeze(-2)
    sigma = m @ m.transpose(-1, -2)
    t = means @ rotation.T + translation
    depth = t[:, 2]
    z = depth.clamp(min=0.2)
    x = torch.clamp(t[:, 0] / z, -limit, limit) * z
    y = torch.clamp(t[:, 1] / z, -limit, limit) * z
    zero = torch.zeros_like(z)
    jacobian = torch.stack(
        [
            torch.stack([focal / z, zero, -focal * x / (z * z)], -1),
            torch.stack([zero, focal / z, -focal * y / (z * z)], -1),
        ],
        dim=-2,
    )
    w = jacobian @ rotation
    cov = torch.einsum("nij,njk,nlk->nil", w, sigma, w)
    a, b, c = cov[:, 0, 0] + 0.3, cov[:, 0, 1], cov[:, 1, 1] + 0.3
    det = a * c - b * b
    conic = torch.stack([c, -b, a], dim=-1) / det.unsqueeze(-1)
    centre = focal * t[:, :2] / z.unsqueeze(-1)
    return centre, torch.where((depth > 0.2)[:, None], conic, torch.zeros_like(conic)), depth


def gaussian_projection(place: Place) -> Made:
    n = place.size(6000, 400_000)
    view = torch.eye(4, device=place.device)
    view[2, 3] = 4.0
    return project_gaussians, (
        place.randn(n, 3).requires_grad_(),
        (-2 + 0.5 * place.randn(n, 3)).requires_grad_(),
        place.randn(n, 4).requires_grad_(),
        view,
    )


def composite_tiles(
    centres: Tensor, conics: Tensor, opacity: Tensor, colours: Tensor, lists: Tensor, origins: Tensor, side: int = 16
) -> Tensor:
    """The second half: each tile gathers its sorted splats and blends them front to back."""
    pixel = torch.arange(side, device=centres.device, dtype=centres.dtype) + 0.5
    y, x = torch.meshgrid(pixel, pixel, indexing="ij")
    pixels = torch.stack([x.flatten(), y.flatten()], -1) + origins[:, None, :]
    delta = pixels[:, None] - centres[lists][:, :, None]
    dx, dy = delta[..., 0], delta[..., 1]
    a, b, c = conics[lists].unsqueeze(-1).unbind(2)
    power = -0.5 * (a * dx**2 + c * dy**2) - b * dx * dy
    alpha = (opacity[lists].sigmoid()[..., None] * torch.exp(power.clamp(max=0))).clamp(max=0.99)
    transmittance = torch.cumprod(1 - alpha, dim=1)
    before = torch.cat([torch.ones_like(transmittance[:, :1]), transmittance[:, :-1]], dim=1)
    rgb = torch.einsum("tgp,tgc->tpc", alpha * before, colours[lists])
    return rgb + transmittance[:, -1, :, None]


def gaussian_compositing(place: Place) -> Made:
    n, tiles, deep = place.size(1000, 50_000), place.size(4, 192), place.size(48, 128)
    x, y = torch.arange(tiles) % 16, torch.arange(tiles) // 16
    origins = (16.0 * torch.stack([x, y], -1)).to(place.device)
    return composite_tiles, (
        (256 * place.rand(n, 2)).requires_grad_(),
        (torch.tensor([0.02, 0.0, 0.02]) + 0.005 * torch.rand(n, 3)).to(place.device).requires_grad_(),
        place.randn(n).requires_grad_(),
        place.rand(n, 3).requires_grad_(),
        place.randint(n, tiles, deep),
        origins,
    )


C0 = 0.28209479177387814
C1 = 0.4886025119029199
C2 = (1.0925484305920792, -1.0925484305920792, 0.31539156525252005, -1.0925484305920792, 0.5462742152960396)
C3 = (
    -0.5900435899266435,
    2.890611442640554,
    -0.4570457994644658,
    0.3731763325901154,
    -0.4570457994644658,
    1.445305721320277,
    -0.5900435899266435,
)


def spherical_harmonics(coefficients: Tensor, points: Tensor, camera: Tensor) -> Tensor:
    """Colours that depend on the view, to the third degree, as radiance-field viewers write it out."""
    directions = points - camera
    directions = directions / directions.norm(dim=-1, keepdim=True)
    x, y, z = directions[:, 0:1], directions[:, 1:2], directions[:, 2:3]
    sh = coefficients
    result = C0 * sh[..., 0]
    result = result - C1 * y * sh[..., 1] + C1 * z * sh[..., 2] - C1 * x * sh[..., 3]
    xx, yy, zz = x * x, y * y, z * z
    xy, yz, xz = x * y, y * z, x * z
    result = (
        result
        + C2[0] * xy * sh[..., 4]
        + C2[1] * yz * sh[..., 5]
        + C2[2] * (2.0 * zz - xx - yy) * sh[..., 6]
        + C2[3] * xz * sh[..., 7]
        + C2[4] * (xx - yy) * sh[..., 8]
    )
    result = (
        result
        + C3[0] * y * (3 * xx - yy) * sh[..., 9]
        + C3[1] * xy * z * sh[..., 10]
        + C3[2] * y * (4 * zz - xx - yy) * sh[..., 11]
        + C3[3] * z * (2 * zz - 3 * xx - 3 * yy) * sh[..., 12]
        + C3[4] * x * (4 * zz - xx - yy) * sh[..., 13]
        + C3[5] * z * (xx - yy) * sh[..., 14]
        + C3[6] * x * (xx - 3 * yy) * sh[..., 15]
    )
    return torch.clamp_min(result + 0.5, 0.0)


def harmonics(place: Place) -> Made:
    n = place.size(16_384, 1_000_000)
    return spherical_harmonics, (place.randn(n, 3, 16), 3 * place.randn(n, 3), place.randn(3))


def ggx_shading(
    albedo: Tensor, normal: Tensor, rough: Tensor, metal: Tensor, position: Tensor, lights: Tensor, power: Tensor
) -> Tensor:
    """Deferred shading with Cook and Torrance's model; the lights in a loop, an ACES curve at the end."""
    n = F.normalize(normal, dim=0)
    v = F.normalize(-position, dim=0)
    f0 = torch.lerp(torch.full_like(albedo, 0.04), albedo, metal)
    a2 = rough.clamp(min=0.089).pow(4)
    k = (rough + 1) ** 2 / 8
    n_v = (n * v).sum(0, keepdim=True).clamp(min=1e-3)
    radiance = 0.03 * albedo
    for light, colour in zip(lights.unbind(0), power.unbind(0), strict=True):
        offset = light[:, None, None] - position
        distance2 = (offset * offset).sum(0, keepdim=True)
        incoming = offset * distance2.rsqrt()
        h = F.normalize(v + incoming, dim=0)
        n_l = (n * incoming).sum(0, keepdim=True).clamp(min=0)
        n_h = (n * h).sum(0, keepdim=True).clamp(min=0)
        v_h = (v * h).sum(0, keepdim=True).clamp(0, 1)
        d = a2 / (math.pi * (n_h * n_h * (a2 - 1) + 1) ** 2)
        g = n_v / (n_v * (1 - k) + k) * n_l / (n_l * (1 - k) + k)
        f = f0 + (1 - f0) * (1 - v_h) ** 5
        specular = d * g * f / (4 * n_v * n_l + 1e-3)
        diffuse = (1 - f) * (1 - metal) * albedo / math.pi
        radiance = radiance + (diffuse + specular) * colour[:, None, None] / distance2 * n_l
    return (radiance * (2.51 * radiance + 0.03) / (radiance * (2.43 * radiance + 0.59) + 0.14)).clamp(0, 1)


def shading(place: Place) -> Made:
    h, w = place.size(96, 1080), place.size(96, 1920)
    depth = torch.tensor([0.0, 0.0, -4.0], device=place.device)[:, None, None]
    lights = place.size(4, 6)
    return ggx_shading, (
        place.rand(3, h, w),
        place.randn(3, h, w) + torch.tensor([0.0, 0.0, 2.0], device=place.device)[:, None, None],
        0.2 + 0.8 * place.rand(1, h, w),
        (place.rand(1, h, w) > 0.7).to(torch.float32),
        place.randn(3, h, w) * 0.5 + depth,
        3 * place.randn(lights, 3),
        10 * place.rand(lights, 3),
    )


def environment_lookup(panorama: Tensor, normals: Tensor, view: Tensor, roughness: Tensor) -> Tensor:
    """Reflections from an equirectangular map: two levels of blur, each bilinear with a seam that wraps."""
    normals = F.normalize(normals, dim=-1)
    reflected = 2 * (normals * view).sum(-1, keepdim=True) * normals - view
    x, y, z = F.normalize(reflected, dim=-1).unbind(-1)
    u = torch.atan2(y, x) / (2 * math.pi) + 0.5
    v = torch.acos(z.clamp(-0.9999, 0.9999)) / math.pi
    levels = [panorama, F.interpolate(F.avg_pool2d(panorama[None], 4), scale_factor=2, mode="bilinear")[0]]
    samples = []
    for level in levels:
        _, h, w = level.shape
        px, py = u * w - 0.5, (v * h - 0.5).clamp(0, h - 1)
        x0, y0 = torch.floor(px), torch.floor(py)
        fx, fy = (px - x0)[:, None], (py - y0)[:, None]
        left, right = x0.long() % w, (x0.long() + 1) % w
        top = y0.long()
        bottom = (top + 1).clamp(max=h - 1)
        upper = level[:, top, left].T * (1 - fx) + level[:, top, right].T * fx
        lower = level[:, bottom, left].T * (1 - fx) + level[:, bottom, right].T * fx
        samples.append(upper * (1 - fy) + lower * fy)
    return torch.lerp(samples[0], samples[1], roughness)


def environment(place: Place) -> Made:
    n, h = place.size(16_384, 2_000_000), place.size(64, 512)
    panorama = F.interpolate(place.rand(1, 3, h // 8, h // 4), scale_factor=8, mode="bilinear")[0]
    return environment_lookup, (
        panorama,
        place.randn(n, 3),
        F.normalize(place.randn(n, 3), dim=-1),
        place.rand(n, 1),
    )


def grid_faces(n: int) -> Tensor:
    """The two triangles of every square of an n x n grid."""
    index = torch.arange(n * n).view(n, n)
    a, b, c, d = index[:-1, :-1], index[:-1, 1:], index[1:, :-1], index[1:, 1:]
    return torch.cat([torch.stack([a, b, c], -1).view(-1, 3), torch.stack([b, d, c], -1).view(-1, 3)])


def taubin_smoothing(
    vertices: Tensor, edges: Tensor, steps: int = 5, shrink: float = 0.5, grow: float = -0.53
) -> Tensor:
    """A low-pass filter of a mesh: shrinking and growing Laplacian steps by turns."""
    i, j = edges.unbind(1)
    count = torch.zeros(vertices.size(0), 1, dtype=vertices.dtype, device=vertices.device)
    one = torch.ones_like(i, dtype=vertices.dtype).unsqueeze(1)
    count.index_add_(0, i, one).index_add_(0, j, one)
    count.clamp_(min=1)
    for _ in range(steps):
        for factor in (shrink, grow):
            total = torch.zeros_like(vertices)
            total.index_add_(0, i, vertices[j])
            total.index_add_(0, j, vertices[i])
            vertices = vertices + factor * (total / count - vertices)
    return vertices


def smoothing(place: Place) -> Made:
    n = place.size(80, 512)
    faces = grid_faces(n)
    edges = torch.cat([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    return taubin_smoothing, (place.randn(n * n, 3), edges.sort(dim=1).values.unique(dim=0).to(place.device))


def shaded_mesh(vertices: Tensor, faces: Tensor, light: Tensor) -> tuple[Tensor, Tensor]:
    """Normals of vertices from the faces around, weighted by angle; a Lambert term and the mesh's volume."""
    v0, v1, v2 = vertices[faces].unbind(dim=1)
    cross = torch.cross(v1 - v0, v2 - v0, dim=1)
    unit = F.normalize(cross, eps=1e-6, dim=1)
    normals = torch.zeros_like(vertices)
    corners = (v0, v1, v2)
    for corner in range(3):
        here, after, before = corners[corner], corners[(corner + 1) % 3], corners[(corner + 2) % 3]
        cosine = F.cosine_similarity(after - here, before - here, dim=1)
        angle = torch.acos(cosine.clamp(-0.999, 0.999))
        normals = normals.scatter_add(0, faces[:, corner : corner + 1].expand(-1, 3), unit * angle[:, None])
    normals = F.normalize(normals, dim=1)
    volume = (v0 * torch.cross(v1, v2, dim=1)).sum() / 6
    return 0.1 + F.relu(normals @ light), volume / faces.size(0)


def vertex_normals(place: Place) -> Made:
    n = place.size(48, 600)
    heights = place.randn(n, n, 1)
    axis = torch.arange(n, dtype=torch.float32, device=place.device)
    xy = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1)
    vertices = torch.cat([xy, heights], -1).view(-1, 3).requires_grad_()
    return shaded_mesh, (vertices, grid_faces(n).to(place.device), F.normalize(place.randn(3), dim=0))


class Skinning(nn.Module):
    """SMPL in short: shape and pose blend shapes, axis angles, a chain of 24 joints, blended transforms."""

    template: Tensor
    regressor: Tensor
    weights: Tensor

    parents = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21)

    def __init__(self, vertices: int) -> None:
        super().__init__()
        joints = len(self.parents)
        self.register_buffer("template", torch.randn(vertices, 3))
        self.register_buffer("regressor", torch.rand(joints, vertices) / vertices)
        self.register_buffer("weights", torch.softmax(4 * torch.randn(vertices, joints), dim=1))
        self.shapes = nn.Parameter(0.1 * torch.randn(vertices, 3, 10))
        self.poses = nn.Parameter(0.01 * torch.randn((joints - 1) * 9, vertices * 3))

    @staticmethod
    def rodrigues(r: Tensor) -> Tensor:
        angle = torch.norm(r + 1e-8, dim=-1, keepdim=True)
        x, y, z = (r / angle).unbind(-1)
        zero = torch.zeros_like(x)
        k = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=-1).view(*r.shape[:-1], 3, 3)
        angle = angle.unsqueeze(-1)
        identity = torch.eye(3, dtype=r.dtype, device=r.device)
        return identity + torch.sin(angle) * k + (1 - torch.cos(angle)) * (k @ k)

    def forward(self, betas: Tensor, pose: Tensor, translation: Tensor) -> tuple[Tensor, Tensor]:
        b = betas.size(0)
        shaped = self.template + torch.einsum("bl,vkl->bvk", betas, self.shapes)
        rest = torch.einsum("bvk,jv->bjk", shaped, self.regressor)
        rotation = self.rodrigues(pose.view(b, -1, 3))
        feature = (rotation[:, 1:] - torch.eye(3, dtype=pose.dtype, device=pose.device)).reshape(b, -1)
        posed = shaped + torch.matmul(feature, self.poses).view(b, -1, 3)

        relative = rest.clone()
        relative[:, 1:] -= rest[:, list(self.parents[1:])]
        local = F.pad(torch.cat([rotation, relative.unsqueeze(-1)], dim=-1), (0, 0, 0, 1))
        local[..., 3, 3] = 1
        chain = [local[:, 0]]
        for joint in range(1, len(self.parents)):
            chain.append(torch.matmul(chain[self.parents[joint]], local[:, joint]))
        transforms = torch.stack(chain, dim=1)
        joints = transforms[..., :3, 3]
        back = torch.matmul(transforms[..., :3, :3], rest.unsqueeze(-1))
        affine = torch.cat([transforms[..., :3, :3], joints.unsqueeze(-1) - back], dim=-1)

        blended = torch.matmul(self.weights, affine.flatten(2)).view(b, -1, 3, 4)
        homogeneous = F.pad(posed, (0, 1), value=1.0)
        vertices = torch.matmul(blended, homogeneous.unsqueeze(-1)).squeeze(-1)
        return vertices + translation[:, None], joints


def skinning(place: Place) -> Made:
    b, vertices = place.size(2, 64), place.size(800, 6890)
    return Skinning(vertices).to(place.device), (
        place.randn(b, 10).requires_grad_(),
        (0.3 * place.randn(b, 72)).requires_grad_(),
        place.randn(b, 3),
    )


class HashGrid(nn.Module):
    """Instant-NGP's encoding: hashed corners at every resolution, interpolated, and a small network."""

    def __init__(self, levels: int, log_size: int, features: int = 2, coarse: int = 16, growth: float = 1.45) -> None:
        super().__init__()
        self.levels, self.size, self.coarse, self.growth = levels, 2**log_size, coarse, growth
        self.tables = nn.ModuleList([nn.Embedding(self.size, features) for _ in range(levels)])
        self.net = nn.Sequential(nn.Linear(levels * features, 64), nn.SiLU(), nn.Linear(64, 4))

    def hash(self, corner: Tensor) -> Tensor:
        x, y, z = corner[..., 0], corner[..., 1], corner[..., 2]
        return (x ^ (y * 2654435761) ^ (z * 805459861)) & (self.size - 1)

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        corners = torch.tensor([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)], device=points.device)
        encoded = []
        for level, table in enumerate(self.tables):
            resolution = math.floor(self.coarse * self.growth**level)
            scaled = points * resolution
            base = scaled.floor()
            fraction = scaled - base
            vertices = base.long().unsqueeze(1) + corners
            weights = torch.where(corners.bool(), fraction.unsqueeze(1), 1 - fraction.unsqueeze(1)).prod(-1)
            encoded.append((table(self.hash(vertices)) * weights.unsqueeze(-1)).sum(1))
        out = self.net(torch.cat(encoded, dim=-1))
        return F.softplus(out[:, 0] - 1), torch.sigmoid(out[:, 1:])


def hash_grid(place: Place) -> Made:
    n, levels, log_size = place.size(2048, 262_144), place.size(6, 8), place.size(10, 16)
    return HashGrid(levels, log_size).to(place.device), (place.rand(n, 3),)


def fade(t: Tensor) -> Tensor:
    return t * t * t * (t * (t * 6 - 15) + 10)


def perlin(x: Tensor, y: Tensor, table: Tensor) -> Tensor:
    """Improved noise: gradients at the lattice by a permutation, blended."""
    xi, yi = x.floor().to(torch.int64), y.floor().to(torch.int64)
    xf, yf = x - xi, y - yi
    xi, yi = xi & 255, yi & 255

    def gradient(dx: int, dy: int) -> Tensor:
        h = table[(table[(xi + dx) & 255] + yi + dy) & 255] & 7
        px, py = xf - dx, yf - dy
        u = torch.where(h < 4, px, py)
        v = torch.where(h < 4, py, px)
        return torch.where((h & 1) == 0, u, -u) + torch.where((h & 2) == 0, 2.0 * v, -2.0 * v)

    u, v = fade(xf), fade(yf)
    bottom = torch.lerp(gradient(0, 0), gradient(1, 0), u)
    top = torch.lerp(gradient(0, 1), gradient(1, 1), u)
    return torch.lerp(bottom, top, v)


def fractal_clouds(x: Tensor, y: Tensor, table: Tensor, octaves: int = 4) -> Tensor:
    """Octaves of noise, their coordinates warped by noise first."""
    x = x + 0.5 * perlin(0.7 * x + 3.1, 0.7 * y, table)
    total = torch.zeros(x.shape[0], x.shape[1], dtype=x.dtype, device=x.device)
    amplitude = 0.5
    for octave in range(octaves):
        total += amplitude * perlin(x * 2**octave, y * 2**octave, table).abs()
        amplitude *= 0.5
    return 1 - torch.exp(-((total * 2) ** 2))


def clouds(place: Place) -> Made:
    n = place.size(96, 1536)
    axis = torch.linspace(0, 7.9, n, device=place.device)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return fractal_clouds, (x.contiguous(), y.contiguous(), torch.randperm(256).to(place.device))


class Bloom(nn.Module):
    """A bright pass with a soft knee, a pyramid of separable blurs, added back up and vignetted."""

    kernel: Tensor

    def __init__(self, levels: int = 4, radius: int = 4, threshold: float = 0.8, knee: float = 0.4) -> None:
        super().__init__()
        self.levels, self.radius, self.threshold, self.knee = levels, radius, threshold, knee
        kernel = torch.exp(-(torch.arange(-radius, radius + 1).float() ** 2) / (radius * 1.5))
        self.register_buffer("kernel", kernel / kernel.sum())

    def blur(self, x: Tensor) -> Tensor:
        c, r = x.size(1), self.radius
        k = self.kernel.view(1, 1, 1, -1).repeat(c, 1, 1, 1)
        x = F.conv2d(F.pad(x, (r, r, 0, 0), mode="reflect"), k, groups=c)
        return F.conv2d(F.pad(x, (0, 0, r, r), mode="reflect"), k.transpose(2, 3), groups=c)

    def forward(self, image: Tensor) -> Tensor:
        brightness = image.amax(dim=1, keepdim=True)
        soft = (brightness - self.threshold + self.knee).clamp(0, 2 * self.knee)
        soft = soft * soft / (4 * self.knee + 1e-4)
        bright = image * torch.maximum(soft, brightness - self.threshold) / brightness.clamp(min=1e-4)
        pyramid = []
        for _ in range(self.levels):
            bright = self.blur(F.avg_pool2d(bright, 2))
            pyramid.append(bright)
        glow = pyramid.pop()
        while pyramid:
            finer = pyramid.pop()
            glow = finer + 0.7 * F.interpolate(glow, size=finer.shape[-2:], mode="bilinear", align_corners=False)
        out = image + 0.3 * F.interpolate(glow, size=image.shape[-2:], mode="bilinear", align_corners=False)
        h, w = image.shape[-2:]
        y = torch.linspace(-1, 1, h, dtype=image.dtype, device=image.device).view(-1, 1)
        x = torch.linspace(-1, 1, w, dtype=image.dtype, device=image.device).view(1, -1)
        out *= 1 - 0.3 * (x**2 + y**2)
        return (out / (1 + out)).pow(1 / 2.2)


def bloom(place: Place) -> Made:
    h, w = place.size(128, 2160), place.size(192, 3840)
    return Bloom().to(place.device), (2 * place.rand(1, 3, h, w) ** 3,)


ROWS: tuple[Row, ...] = (
    Row("program/gaussian_projection", gaussian_projection, "training"),
    Row("program/gaussian_compositing", gaussian_compositing, "training"),
    Row("program/spherical_harmonics", harmonics),
    Row("program/ggx_shading", shading),
    Row("program/environment_map", environment),
    Row("program/taubin_smoothing", smoothing),
    Row("program/vertex_normals", vertex_normals, "training"),
    Row("program/skinned_body", skinning, "training"),
    Row("program/hash_grid_encoding", hash_grid, "training"),
    Row("program/perlin_clouds", clouds),
    Row("program/bloom", bloom),
)
