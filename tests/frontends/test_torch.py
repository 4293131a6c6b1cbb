"""What the way from torch to Relay has to get right, compared with torch."""

from __future__ import annotations

from typing import Any

import pytest

from op_profiler.errors import ModelError

from .lowered import check, lower


def test_writing_in_place_is_seen_later(torch: Any, run: Any) -> None:
    class Writes(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = x * 2
            y[:, 1:] = 3
            y[0].zero_()
            y[1:2, :2].fill_(4.5)
            z = x + 1
            torch.nn.functional.relu(z, inplace=True)
            return y + z

    check(Writes(), run, torch, torch.randn(4, 4))


def test_a_layer_that_is_called_twice_has_one_copy_of_its_weights(torch: Any, run: Any) -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.layer(torch.relu(self.layer(x)))

    assert len(check(Twice(), run, torch, torch.randn(2, 8)).params) == 2


def test_what_is_first_met_in_a_list_is_one_value(torch: Any, run: Any) -> None:
    class Lists(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 6))

        def forward(self, x: Any) -> Any:
            y = torch.cat([x, x, self.weight], 0)
            return y, x * 2, self.weight * x

    lowered = check(Lists(), run, torch, torch.randn(4, 6))
    assert [spec.name for spec in lowered.inputs] == ["x0"] and len(lowered.params) == 1


def test_attention_and_nested_outputs(torch: Any, run: Any) -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

        def forward(self, x: Any) -> Any:
            y = self.encoder(x)
            return {"last": y, "rest": [y.mean(1), (y.sum(),)]}

    torch.manual_seed(0)
    check(Block(), run, torch, torch.randn(2, 6, 16))


def test_diff(torch: Any, run: Any) -> None:
    class Diff(torch.nn.Module):
        def forward(self, x: Any, first: Any) -> Any:
            return torch.diff(x, n=2, dim=1), torch.diff(x, prepend=first, dim=-1)

    check(Diff(), run, torch, torch.randn(3, 5), torch.randn(3, 1))


def test_norms_without_weights(torch: Any, run: Any) -> None:
    class Norms(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(6))
            self.plane = torch.nn.Parameter(torch.randn(5, 4))

        def forward(self, x: Any) -> Any:
            norms = torch.nn.functional
            both = norms.layer_norm(x, (5, 4), self.plane, self.plane + 1)
            own = norms.batch_norm(x, None, None, weight=self.weight, bias=-self.weight, training=True)
            learned = norms.batch_norm(x, self.weight, self.weight.abs() + 1)
            return norms.layer_norm(x, (4,)), both, norms.batch_norm(x, None, None, training=True), own, learned

    torch.manual_seed(0)
    check(Norms(), run, torch, torch.randn(2, 6, 5, 4))


def test_convolutions_whose_padding_is_a_word(torch: Any, run: Any) -> None:
    even = torch.nn.Conv2d(4, 6, 4, padding="same")
    grouped = torch.nn.Conv2d(6, 6, 3, padding="same", groups=6, dilation=2, bias=False)
    check(
        torch.nn.Sequential(even, grouped, torch.nn.Conv2d(6, 4, 3, stride=2, padding="valid")),
        run,
        torch,
        torch.randn(1, 4, 9, 9),
    )
    check(torch.nn.Conv1d(4, 6, 3, padding="same"), run, torch, torch.randn(1, 4, 9))


def test_windows_as_columns_and_back(torch: Any, run: Any) -> None:
    class Windows(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            parts = torch.nn.functional.unfold(x, 2, stride=2)
            back = torch.nn.functional.fold(parts * 2, (6, 8), 2, stride=2)
            return parts, back, torch.nn.functional.unfold(x, (3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1))

    check(Windows(), run, torch, torch.randn(2, 3, 6, 8))


def test_the_spectral_norm_is_not_taken_for_another(torch: Any, run: Any) -> None:
    class Spectral(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.norm(x, ord=2, dim=(0, 1))

    with pytest.raises(ModelError, match="linalg_norm of order 2"):
        check(Spectral(), run, torch, torch.randn(3, 3))


def test_functions_with_gradients_of_their_own(torch: Any, run: Any) -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.tanh(x) * 2 + y, y - x

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients

    class Raised(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, power: int) -> Any:
            return torch.relu(Doubled.apply(x, y)[0]) ** power

    class Layer(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            a, b = Doubled.apply(x, x + 1)
            return Raised.apply(*Doubled.apply(a, b), 3)

    check(torch.nn.Sequential(torch.nn.Linear(4, 4), Layer()), run, torch, torch.randn(2, 4))


def test_filled_tensors_keep_their_type(torch: Any, run: Any) -> None:
    class Filled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(6, 4))

        def forward(self, x: Any) -> Any:
            at = (x > 0).long().sum(-1)
            at = torch.min(at, torch.full_like(at, 2)) + torch.ones_like(at) + torch.zeros_like(at)
            half = torch.full_like(at, 0.5, dtype=torch.float32)
            return self.table[at], torch.full_like(x, 3), torch.zeros_like(at, dtype=torch.float32), half

    check(Filled(), run, torch, torch.randn(3, 5))


def test_operators_that_the_importer_lacks(torch: Any, run: Any) -> None:
    class Lacking(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            wide = torch.nn.functional.interpolate(x, scale_factor=2.5, mode="linear")
            aligned = torch.nn.functional.interpolate(x, size=5, mode="linear", align_corners=True)
            steps = torch.linspace(0.5, x.shape[2] - 0.5, x.shape[2])
            rows = torch.linalg.norm(x, dim=1)[0]
            return wide, aligned, torch.outer(rows, steps), ((x > 0) | (x < -1)).float(), (x > 1).type_as(x)

    check(Lacking(), run, torch, torch.randn(1, 3, 8))


def test_second_names_of_operators(torch: Any, run: Any) -> None:
    class Named(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = torch.subtract(torch.multiply(x, 3), torch.divide(x, 2), alpha=2)
            return (
                torch.clip(y, -1, 1),
                torch.clip(y, min=0),
                torch.concat([y, torch.negative(y)]),
                torch.concatenate([x, y]),
            )

    check(Named(), run, torch, torch.randn(4, 4))


def test_sizes_are_no_outputs(torch: Any) -> None:
    """A model may return them beside its tensors; in a trace, they look like tensors."""

    class Sized(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            height, width = x.shape[-2:]
            return {"doubled": x * 2, "sizes": (height, (width + 1) // 2 * height), "sum": x.sum()}

    (result,) = [lower(Sized(), torch.randn(2, 3, 6)).mod["main"].ret_type]
    assert [len(field.shape) for field in result.fields] == [3, 0]


def test_an_alias_is_its_tensor(torch: Any, run: Any) -> None:
    """As in programs of torch.export, where a buffer is used twice."""

    class Alias(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.ops.aten.alias(x) * 2 + x

    check(Alias(), run, torch, torch.randn(4, 4))


def test_vision_transformer(torch: Any, run: Any) -> None:
    from op_profiler.frontends.importers import torch as torch_importer

    models = torch_importer.load_torchvision().models
    torch.manual_seed(0)
    model = models.VisionTransformer(32, 8, num_layers=1, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=10)
    torch.nn.init.normal_(model.heads.head.weight)  # it starts at zero, which would hide everything before it
    check(model, run, torch, torch.randn(2, 3, 32, 32))


@pytest.mark.parametrize("version", [pytest.param(1, marks=pytest.mark.slow), 2])  # the second is the first and more
def test_shifted_windows(torch: Any, run: Any, version: int) -> None:
    from functools import partial

    from op_profiler.frontends.importers import torch as torch_importer

    swin = torch_importer.load_torchvision().models.swin_transformer
    block = partial(swin.SwinTransformerBlock if version == 1 else swin.SwinTransformerBlockV2, mlp_ratio=2.0)
    torch.manual_seed(0)
    check(block(16, 2, [4, 4], [2, 2]), run, torch, torch.randn(1, 8, 8, 16))


def test_an_operator_without_a_converter_is_named(torch: Any) -> None:
    class Strange(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.qr(torch.linalg.inv(x))[0]

    with pytest.raises(ModelError, match="no converter for .*aten::linalg_inv.*aten::linalg_qr"):
        lower(Strange(), torch.randn(3, 3))


def test_an_input_that_does_not_fit(torch: Any) -> None:
    with pytest.raises(ModelError, match=r"does not run on inputs of shape \(2, 7\)"):
        lower(torch.nn.Linear(8, 8), torch.randn(2, 7))
