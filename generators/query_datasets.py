"""Named datasets with queries, on which W is trained: the settings of the authors' notebooks.

All numbers are float32, so that products of two numbers are exact in float64.

References: *Transformers as Support Vector Machines*, repository TF-as-SVM: visualization1, visualization2,
local_converge.
"""

from __future__ import annotations

import numpy as np

from generators.case import Case
from reference_attention.query_dataset import QueryDataset

SPHERE = (6, 8, 10)
"""The sizes n, T and d of the notebook local_converge."""


def _case(name: str, X: object, queries: object, v: object, Y: object | None = None) -> Case:
    tokens, z, head = (np.asarray(x, dtype=np.float32).astype(np.float64) for x in (X, queries, v))
    labels = np.ones(len(tokens)) if Y is None else np.asarray(Y, dtype=np.float64)
    data = QueryDataset(tokens, z, labels, head)
    return Case(data.problem, queried=data, name=name)


def tsvm_paths_3() -> Case:
    """Paths of W: n = 2, T = 3, d = 2, cross-attention.

    Source: notebook visualization1, seed 1: tokens 0.3 N(0, 1) about (−1, 0) and (1, 0), unit queries and head.
    """
    X = [
        [(-0.9814968, 0.1863952), (-1.1355718, -0.049839072), (-1.4568305, 0.11450518)],
        [(0.6917174, -0.16891584), (0.7323128, -0.017475054), (0.9413471, -0.2896908)],
    ]
    return _case("tsvm-paths-3", X, [(0.84501135, 0.5347484), (-0.63626397, -0.7714714)], (0.92731994, 0.37426966))


def tsvm_paths_5() -> Case:
    """Paths of W: n = 2, T = 5, d = 2, cross-attention.

    Source: notebook visualization2, seed 3: optimal tokens (1, ±0.5), the others 0.5 N(0, 1) about (−1, 0).
    """
    X = [
        [
            (1.0, 0.5),
            (-0.18972462, -0.798354),
            (-0.7976964, 0.30564982),
            (-0.6198048, -0.01682163),
            (-1.1724226, 0.24682678),
        ],
        [
            (1.0, -0.5),
            (-0.757443, 0.10261719),
            (-0.8307859, 0.676377),
            (-0.8131823, 0.00670823967),
            (-0.6131634, -0.05462176),
        ],
    ]
    return _case("tsvm-paths-5", X, [(-0.53912896, -0.8422232), (0.9525519, 0.30437642)], (0.9771238, 0.21267143))


def tsvm_sphere() -> Case:
    """Local convergence of W: n = 6, T = 8, d = 10; tokens, queries and head on the unit sphere, random labels.

    Source: the setting of the notebook local_converge; seed and generator are ours.
    """
    n, T, d = SPHERE
    rng = np.random.default_rng(0)
    X, queries, v = (rng.standard_normal(shape) for shape in ((n, T, d), (n, d), (d,)))
    X, queries, v = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (X, queries, v))
    return _case("tsvm-sphere", X, queries, v, rng.choice([-1.0, 1.0], n))


QUERY_DATASETS = {"tsvm-paths-3": tsvm_paths_3, "tsvm-paths-5": tsvm_paths_5, "tsvm-sphere": tsvm_sphere}
"""The named datasets with queries, by name."""
