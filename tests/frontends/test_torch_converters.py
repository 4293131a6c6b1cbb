"""Operators of torch that TVM's importer does not know, compared with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .lowered import check


def weights(torch: Any, groups: int) -> Any:
    """Of grouped products."""
    return torch.linspace(-1, 1, groups * 4 * 8).reshape(groups, 4, 8)


def written(data: Any, mask: Any, values: Any) -> Any:
    """The data with other values where a mask is."""
    data = data.clone()
    data[mask] = values
    return data


def three_parts(torch: Any, data: Any) -> Any:
    """Parts whose ends follow from a size, beside a value that is written."""
    data = data.clone()
    data.add_(1)
    count = data.shape[0]
    padded = torch.nn.functional.pad(data, (0, 0, 0, 0, 1, 1))
    return torch.cat([padded[first : first + count] for first in range(3)], 1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rms_norm": lambda torch, x: (
        torch.nn.functional.rms_norm(x, (6,), torch.arange(6.0)),
        torch.nn.functional.rms_norm(x, (4, 6), eps=0.1),
    ),
    "mish": lambda torch, x: (torch.nn.functional.mish(x), torch.nn.functional.mish(x * 100)),
    "bounds": lambda torch, x: (
        torch.clamp(x, -x.abs() / 2, x.abs() / 3),
        torch.clamp(x, -0.5, 0.5),
        torch.clamp(x, max=x[0]),
        torch.clamp_min(x, x.mean()),
        x.clamp(max=0.3),
        (x * 5).long().clamp(min=(x * 3).long()),
    ),
    "largest": lambda torch, x: (*x.max(1), *x.min(2, keepdim=True), x.max(), torch.max(x, -x), x.max(1)[0]),
    "extremes": lambda torch, x: (
        x.argmax(),
        x.argmin(keepdim=True),
        x.argmax(-2),
        *torch.aminmax(x),
        x.amax(()),
        x.amin((0, 2), keepdim=True),
        torch.fmax(x / (x > 0) * (x > 0), x.flip(0)),
        torch.fmin(x, x.flip(0)),
    ),
    "whole": lambda torch, x: (
        (x * 1e12).long() & 0x7FFFFFFFFF,
        (x * 1e12).long() | (x * 1e11).long(),
        (x * 1e12).long() ^ (x * 9).int(),
        ~(x * 1e12).long(),
        (x > 0) & (x < 1) ^ (x > 2),
        x.argsort(2),
        torch.nn.functional.one_hot((x.abs() * 3).long(), 20),
    ),
    "squeezed": lambda torch, x: (
        x.squeeze(1),
        x[:, :1].squeeze(-2),
        x[:1, :, :1].squeeze((0, 1, -1)),
        x.sum().squeeze(0),
        x[:1].squeeze(),
        torch.nn.functional.conv3d(x[None, :, None], torch.ones(4, 1, 1, 3, 3) * x[0, 0, 0], x[0, 0, :4], groups=2),
    ),
    "padded": lambda torch, x: (
        torch.nn.functional.pad(x[None, None], (1, 0, 0, 2, 0, 0, 1, 1, 0, 1)),
        torch.nn.functional.pad(x, (1, 2, -1, 0), value=2.5),
        torch.nn.functional.pad(x, (1, 2), "reflect"),
        torch.nn.functional.pad(x, (1, 2), "replicate"),
        torch.nn.functional.pad(x > 0, (0, 1), value=True),
        torch.nn.functional.pad((x * 9).long(), (0, 1, 3, 0), value=-1),
        three_parts(torch, x),
    ),
    "fourier": lambda torch, x: (
        torch.fft.fft(x).real,
        torch.fft.fft(x, n=9, dim=1, norm="ortho").abs(),
        torch.fft.ifft(torch.fft.fft(x, n=4)).imag,
        torch.view_as_real(torch.fft.rfft(x, n=7, dim=0)),
        torch.fft.fftn(x, dim=(1, 2)).real,
        torch.fft.fft2(torch.complex(x, -x), norm="forward").imag,
        torch.fft.irfft2(torch.fft.rfft2(x)),
        torch.fft.irfftn(torch.fft.rfftn(x, s=(3, 5)), s=(3, 5)),
        torch.stft(x.reshape(2, 24), 8, return_complex=True, window=torch.hann_window(8)).abs(),
        torch.view_as_real(
            torch.stft(x.reshape(2, 24), 8, 3, 6, torch.ones(6), center=False, normalized=True, return_complex=True)
        ),
        torch.stft(x.reshape(2, 24), 8, 4, onesided=False, window=torch.hann_window(8), return_complex=True).real,
    ),
    "lerp": lambda torch, x: (torch.lerp(x, -x, 0.25), torch.lerp(x, -x, x.abs())),
    "shrink": lambda torch, x: (torch.nn.functional.softshrink(x), torch.nn.functional.hardshrink(x, 0.7)),
    "similarity": lambda torch, x: (
        torch.nn.functional.cosine_similarity(x, x.roll(1, 2)),
        torch.nn.functional.cosine_similarity(x[:1], x[:, :1], dim=-1),
    ),
    "scales": lambda torch, x: (
        torch.expm1(x),
        torch.expm1(x * 1e-6),
        torch.exp2(x),
        torch.deg2rad(x),
        torch.rad2deg(x),
        torch.cumprod(x, 2),
        +x,
    ),
    "counts": lambda torch, x: (torch.histc(x, 5, -1, 1), torch.histc((x * 3).round(), bins=4, min=0, max=3)),
    "experts": lambda torch, x: (
        torch.nn.functional.grouped_mm(x.reshape(-1, 4), weights(torch, 3), offs=torch.tensor([2, 2, 12]).int()),
        torch.nn.functional.grouped_mm(
            x.reshape(-1, 4)[:3], weights(torch, 8), offs=torch.tensor([0, 1, 1, 2, 3, 3, 3, 3]).int()
        ),
        torch.nn.functional.grouped_mm(x.reshape(-1, 4)[:8].reshape(2, 4, 4), weights(torch, 2)),
    ),
    "decomposed": lambda torch, x: (
        torch.logaddexp(x, -x),
        torch.frac(x),
        torch.nan_to_num(x / (x > 0)),
        torch.nansum(x / (x > 0) * (x > 0), 1),
        torch.kron(x[0], x[1]),
        torch.tensordot(x, x, dims=([0, 1], [0, 1])),
        torch.diag_embed(x),
        torch.linalg.cross(x[..., :3], x[..., 3:]),
        torch.isin((x * 2).long(), torch.tensor([0, 1, 2])),
        torch.nn.functional.fold(x.reshape(1, 4, 12)[..., :4], (3, 3), (2, 2)),
        *torch.aminmax(x, dim=1),
        *torch.hsplit(x, 2),
    ),
    "composed": lambda torch, x: (
        torch.hypot(x, -x),
        torch.atan2(x, x.roll(1, 2)),
        torch.copysign(x, x.roll(1, 2)),
        torch.signbit(x),
        torch.erfc(x),
        torch.asinh(x),
        torch.acosh(1 + x.abs()),
        torch.atanh(x.tanh()),
        torch.addbmm(torch.ones(4, 4), x, x.mT, beta=2, alpha=0.5),
        torch.nn.functional.bilinear(x, x, torch.linspace(-1, 1, 108).reshape(3, 6, 6)),
        torch.conv_tbc(x, torch.linspace(-1, 1, 36).reshape(2, 6, 3), x[0, 0, :3], 1),
    ),
    "triangles": lambda torch, x: (
        torch.linalg.solve_triangular(torch.eye(4) * 3 + x[0, :, :4], x, upper=False),
        torch.linalg.solve_triangular(torch.eye(4) + x[:, :, :4] / 4, x, upper=True, unitriangular=True),
        torch.linalg.solve_triangular(
            torch.eye(6) * 3 + torch.kron(x[0, :2, :3], x[1, :3, :2]), x, upper=True, left=False
        ),
    ),
    "rotated": lambda torch, x: (
        torch.view_as_real(torch.view_as_complex(x.reshape(2, 4, 3, 2)) * torch.polar(x.abs()[..., :3], x[..., 3:])),
        torch.view_as_real(torch.polar(torch.ones(3), torch.arange(3.0))[None, :, None].expand(2, 3, 4)[:, -2:, 1]),
        torch.view_as_complex(x.reshape(2, 4, 3, 2)).unsqueeze(-1).transpose(-1, 0).abs(),
        (torch.complex(x, -x) * 2 + torch.complex(x, x) * x).real,
        torch.add(torch.complex(x, -x), torch.complex(x, x), alpha=3).imag,
        torch.view_as_real(torch.view_as_complex(x.reshape(2, 4, 3, 2)).conj().resolve_conj()),
    ),
    "masked": lambda torch, x: (
        written(x, (torch.arange(48) > 17).reshape(2, 4, 6), x.reshape(-1)[:30]),
        written(x, torch.tensor([[True, False], [False, True]]).repeat(1, 2), x.reshape(8, 6)[:4]),
        written(x, torch.tensor([[True, False], [False, True]]).repeat(1, 2), x[0, 0]),
        x.masked_scatter(x > 99, x[:, :0]),
        *x[:, :1].unbind(1),
        torch.topk(x, 6, sorted=False)[0].sort()[0],
    ),
    "joined": lambda torch, x: (torch.cat([torch.tensor([]), x], -2), torch.cat([x, x[0, 0, :0], -x])),
    "distances": lambda torch, x: (
        torch.cdist(x, x + 1),
        torch.cdist(x, x[:, :2], p=1),
        torch.cdist(x, x + 1, p=3.0),
        torch.cdist(x, x * 2, p=float("inf")),
        torch.cdist(x, x.abs(), p=0.0),
        torch.pdist(x[0]),
        torch.nn.functional.pdist(x[0], 1),
    ),
    "places": lambda torch, x: (
        x.masked_scatter(x > 0, x.flip(0)),
        x.index_add(1, torch.tensor([0, 2, 0]), x[:, :3], alpha=2),
        x.index_copy(-1, torch.tensor([0, 2]), x[..., :2]),
        x.index_fill(1, torch.tensor([3]), 3.0),
        x.clone().index_add_(0, torch.tensor([1, 1]), x),
        x.as_strided((3, 2, 4), (8, 4, 1)),
        x.transpose(0, 1).as_strided((2, 3), (1, 2)),
        x[1].as_strided((2, 2), (6, 1)),
    ),
    "smoothed": lambda torch, x: (
        torch.nn.functional.interpolate(x[None], (3, 3), mode="bilinear", antialias=True),
        torch.nn.functional.interpolate(x[None], (9, 4), mode="bilinear", antialias=True, align_corners=True),
        torch.nn.functional.interpolate(x[None], (2, 9), mode="bicubic", antialias=True),
    ),
    "unfold": lambda torch, x: (x.unfold(2, 3, 2), x.unfold(1, 2, 2), x.unfold(-1, 4, 1)),
    "moved": lambda torch, x: (x.movedim(0, 2), torch.moveaxis(x, (0, 1), (-1, 0)), x.mT),
    "stacked": lambda torch, x: (
        torch.hstack([x, x]),
        torch.vstack([x[0, 0], x[1, 1]]),
        torch.dstack([x[0], x[1]]),
        torch.dstack([x[0, 0], x[1, 1]]),
        torch.hstack([x[0, 0], x[1, 1]]),
    ),
    "along": lambda torch, x: (
        torch.take_along_dim(x, torch.argsort(x, 2), 2),
        torch.take_along_dim(x, torch.tensor([[[0], [-1]]]), 1),
        torch.take_along_dim(x, torch.tensor([[3, 2]])),
    ),
    "diagonal": lambda torch, x: (torch.diagonal(x, 1, 1, 2), torch.diagonal(x[0], -2), x.diagonal(0, 2, 0)),
    "nearest": lambda torch, x: (
        torch.nn.functional.interpolate(x, 9),
        torch.nn.functional.interpolate(x, scale_factor=2.0),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_computes_what_torch_computes(torch: Any, run: Any, name: str) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return FUNCTIONS[name](torch, x)

    check(Module(), run, torch, torch.randn(2, 4, 6))
