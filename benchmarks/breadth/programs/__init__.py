"""Programs as people write them by hand, by topic."""

from __future__ import annotations

from ..row import Row
from . import (
    attention,
    clustering,
    decoding,
    experts,
    generative,
    geometry,
    graphs,
    images,
    losses,
    metrics,
    norms,
    optimisers,
    particles,
    pointwise,
    quantised,
    recommenders,
    recurrent,
    reinforcement,
    sampling,
    scans,
    spectra,
    stencils,
)

ROWS: tuple[Row, ...] = (
    *losses.ROWS,
    *stencils.ROWS,
    *particles.ROWS,
    *graphs.ROWS,
    *scans.ROWS,
    *recurrent.ROWS,
    *images.ROWS,
    *sampling.ROWS,
    *decoding.ROWS,
    *quantised.ROWS,
    *pointwise.ROWS,
    *clustering.ROWS,
    *generative.ROWS,
    *experts.ROWS,
    *attention.ROWS,
    *norms.ROWS,
    *spectra.ROWS,
    *metrics.ROWS,
    *recommenders.ROWS,
    *optimisers.ROWS,
    *reinforcement.ROWS,
    *geometry.ROWS,
)
