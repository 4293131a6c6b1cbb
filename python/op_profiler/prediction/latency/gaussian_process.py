"""`GaussianProcess`: regression with a sum of kernels, weighted by maximum likelihood.

A Gaussian process whose covariance is a sum of kernels (Rasmussen & Williams, Gaussian Processes for Machine Learning,
2006, chapters 2 and 5). Each kernel has its own coordinates: one kernel describes what all operators have in common,
another what operators of one kind have in common, a third what operators of similar sizes have in common. The variance
of each kernel maximizes the likelihood of the measurements: operators with few measurements are estimated from similar
ones, and operators with many different measurements are estimated separately. No parameter has to be tuned for a
processor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

_START, _NOISE = 0.03, 0.02
"""Variances of a kernel and of a measurement, both of logarithms of times, from which the search starts."""
_WIDTH = 1.5
"""Prior standard deviation of the logarithm of a variance around its start."""
_FARTHEST = 5.0
"""Limit in these standard deviations: beyond it, the covariance could not be inverted."""
_STEPS = 40
_AT_ONCE = 4096


@dataclasses.dataclass(frozen=True)
class GaussianProcess:
    """A fitted Gaussian process.

    Attributes:
        places: coordinates of the training rows for each kernel, of shapes (rows, dimensions); rows at a distance of
            one are similar.
        variances: variance of each kernel.
        noise: variance of the noise of each row.
        coefficients: coefficient of each row.
    """

    places: tuple[np.ndarray, ...]
    variances: np.ndarray
    noise: np.ndarray
    coefficients: np.ndarray

    @classmethod
    def fit(cls, places: Sequence[np.ndarray], target: np.ndarray, weight: np.ndarray) -> GaussianProcess:
        """Fit the process to rows whose targets have an expected mean of zero.

        Args:
            places: coordinates for each kernel, shape (rows, dimensions).
            weight: a row with twice the weight has half of the noise variance.
        """
        from scipy.optimize import minimize

        kernels = np.array([alike(one, one) for one in places])
        relative = weight.mean() / weight
        start = np.log([*[_START] * len(kernels), _NOISE])

        def unlikely(logs: np.ndarray) -> tuple[float, np.ndarray]:
            """Return the negative logarithm of likelihood times prior, and its gradient."""
            variances = np.exp(logs)
            inverse, log_determinant = _inverse(kernels, variances[:-1], variances[-1] * relative)
            coefficients = inverse @ target
            rest = inverse - np.outer(coefficients, coefficients)
            slopes = [*np.einsum("ij,kij->k", rest, kernels), np.diag(rest) @ relative]
            away = (logs - start) / _WIDTH
            value = 0.5 * (target @ coefficients + log_determinant + away @ away)
            return value, 0.5 * variances * slopes + away / _WIDTH

        reach = _FARTHEST * _WIDTH
        bounds = [(at - reach, at + reach) for at in start]
        found = minimize(unlikely, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS})
        variances = np.exp(found.x)
        noise = variances[-1] * relative
        coefficients = _inverse(kernels, variances[:-1], noise)[0] @ target
        return cls(tuple(places), variances[:-1], noise, coefficients)

    def predict(self, places: Sequence[np.ndarray]) -> np.ndarray:
        """Return the predictions for rows with coordinates for the same kernels, shape (rows,)."""
        found = np.empty(len(places[0]))
        kernels = list(zip(self.variances, places, self.places, strict=True))
        for begin in range(0, len(found), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            shared = sum(v * alike(here[part], mine) for v, here, mine in kernels)
            found[part] = shared @ self.coefficients
        return found

    def off_if_left_out(self, group: np.ndarray) -> np.ndarray:
        """Return the error on each row (measured minus predicted) if all rows of its group were left out.

        The error is computed from the inverse of the covariance, without fitting the variances again (Rasmussen &
        Williams, section 5.4.2).
        """
        kernels = np.array([alike(one, one) for one in self.places])
        inverse, _ = _inverse(kernels, self.variances, self.noise)
        off = np.empty(len(group))
        for one in np.unique(group):
            mine = np.flatnonzero(group == one)
            off[mine] = np.linalg.solve(inverse[np.ix_(mine, mine)], self.coefficients[mine])
        return off


def alike(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return the similarity of each row of `here` to each row of `there`, shape (rows here, rows there): 1 at the same
    coordinates, decreasing with the distance."""
    squares = (here**2).sum(axis=1)[:, None] - 2 * here @ there.T + (there**2).sum(axis=1)
    found: np.ndarray = np.exp(-0.5 * np.maximum(squares, 0.0))
    return found


def _inverse(kernels: np.ndarray, variances: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the inverse of the covariance of the rows, and the logarithm of the covariance's determinant."""
    from scipy.linalg import cho_factor, cho_solve

    covariance = np.tensordot(variances, kernels, 1) + np.diag(noise)
    factor = cho_factor(covariance, lower=True)
    return cho_solve(factor, np.eye(len(noise))), 2 * float(np.log(np.diag(factor[0])).sum())
