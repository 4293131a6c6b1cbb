"""Writing in place to tensors and to views of them, compared with torch, in traces and in exported programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from op_profiler.errors import ModelError

from .lowered import check, lower


def both(*parts: Any) -> Any:
    """The last of several steps."""
    return parts[-1]


WRITES: dict[str, Callable[..., Any]] = {
    "slice": lambda torch, y: y[:, :2].add_(3),
    "slice, added and assigned": lambda torch, y: both(y.__setitem__(0, y[0].add_(3)), y[1]),
    "place": lambda torch, y: y[:, 0].mul_(2),
    "place from behind": lambda torch, y: y[:, -1].relu_(),
    "assigned from behind": lambda torch, y: both(y.__setitem__((slice(-2, None), -1), 0.5), y[1]),
    "steps": lambda torch, y: both(y[:, ::2].add_(1), y[1::2, 1:4:2].copy_(torch.ones(3))),
    "view": lambda torch, y: y.view(-1).relu_(),
    "reshape that is a view": lambda torch, y: y.reshape(-1).relu_(),
    "reshape that is a copy": lambda torch, y: y.transpose(0, 1).reshape(-1).relu_(),
    "contiguous copy": lambda torch, y: y.transpose(0, 1).contiguous().relu_(),
    "flatten": lambda torch, y: y.flatten(1)[:, ::3].fill_(7),
    "squeeze": lambda torch, y: y[:, 1:2].squeeze(1).add_(4),
    "unsqueeze in place": lambda torch, y: y[0].unsqueeze_(0).mul_(2),
    "transpose": lambda torch, y: y.transpose(1, 2).add_(1),
    "permute": lambda torch, y: y.permute(2, 0, 1)[0].sub_(1),
    "nested": lambda torch, y: y[1:][0].t()[1].fill_(5),
    "narrow": lambda torch, y: y.narrow(1, 2, 3).zero_(),
    "detach": lambda torch, y: y.detach().add_(1),
    "chunk": lambda torch, y: both(*(part.mul_(3 + i) for i, part in enumerate(y.chunk(2, 1)))),
    "unbind": lambda torch, y: y.unbind(1)[2].mul_(3),
    "output": lambda torch, y: torch.add(y, 1, out=y),
    "copy": lambda torch, y: y[:, 1:4].copy_(y[:, :3] * 2),
    "part of a part": lambda torch, y: y[0].masked_fill_(y[0] > 0, 2.0),
    "rounded quotient": lambda torch, y: y[0].div_(0.5, rounding_mode="trunc"),
    "calculated places": lambda torch, y: y[:, y.numel() // 36 : y.shape[1] - 1].zero_(),
    "again and again": lambda torch, y: both(
        v := y.view(-1), a := v[:3], v.mul_(2), a.add_(1), v.add_(1), y[0].relu_(), a.mul_(3), (a * 1, v * 1)
    ),
    "chunks again": lambda torch, y: both(
        parts := y.chunk(3, 1), parts[1].mul_(2), y.add_(1), parts[1].relu_(), parts[2].mul_(3), [p * 1 for p in parts]
    ),
    "mask": lambda torch, y: both(y.__setitem__(y > 0, 0.5), y[1].__setitem__(y[1, :, 0] < 0, -1.0), y[0]),
    "places": lambda torch, y: both(y.__setitem__((torch.tensor([0, -1]), torch.tensor([[2], [1]])), 0.5), y[0]),
    "scatter": lambda torch, y: y.scatter_(1, torch.tensor([2, 0, 5]).view(1, 1, 3).repeat(4, 1, 1), y.abs()),
    "scatter of numbers": lambda torch, y: y.scatter_(-1, torch.ones(4, 6, 1, dtype=torch.long), 7.0),
    "scatter, added": lambda torch, y: both(
        index := torch.tensor([1, 1]).view(1, 2, 1).repeat(4, 1, 3),
        y.scatter_add(1, index, y * 2),
        y.scatter_reduce(1, index, y * 2, "amax"),
    ),
    "views from before": lambda torch, y: both(views := (y[0], y.view(-1)), y.add_(1), views),
    "views that overlap": lambda torch, y: both(a := y[:, :3], b := y[:, 2:], a.add_(1), b + 0),
    "views that do not": lambda torch, y: both(a := y[:, :3], b := y[:, 3:], a.add_(1), b.mul_(2), (a * 1, b * 1)),
}


def writes(torch: Any, function: Callable[..., Any]) -> Any:
    class Writes(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = x * 1
            return function(torch, y), y

    return Writes()


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_seen_wherever_the_memory_is_shared(torch: Any, run: Any, name: str) -> None:
    x = torch.randn(4, 6, 3)
    check(writes(torch, WRITES[name]), run, torch, x)


@pytest.mark.parametrize("name", ["slice", "place", "view", "transpose", "chunk", "views from before"])
def test_in_exported_programs_too(torch: Any, run: Any, name: str) -> None:
    x = torch.randn(4, 6, 3)
    module = writes(torch, WRITES[name])
    expected = torch.utils._pytree.tree_leaves(module(x))
    outputs = run(lower(torch.export.export(module, (x,)).module(), x), {"x0": x.numpy()})
    for output, reference in zip(outputs, expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(output), reference)


def test_a_write_that_nobody_sees_changes_no_more_than_its_tensor(torch: Any, tvm: Any) -> None:
    """Ordinary networks write to whole tensors, and to parts of what is not used again."""
    parts = lower(writes(torch, lambda _, y: both(q := y.chunk(2, 1)[0], q.mul_(2), q)), torch.randn(4, 6, 3))
    assert "concatenate" in str(parts.mod)  # y is an output of the module

    class Unseen(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            first, second = torch.relu_(x * 1).chunk(2, 1)
            first *= 2
            return first + second

    assert "concatenate" not in str(lower(Unseen(), torch.randn(4, 6, 3)).mod)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda torch, y: y.diagonal().add_(1), "aten::add_ of what aten::diagonal gives"),
        (lambda torch, y: y.scatter_(0, torch.zeros(1, 1, dtype=torch.long), 1.0), "fewer indices than data"),
        (lambda torch, y: both(y.__setitem__((slice(None), [0, 1]), 1.0), y[0]), "axes that are taken whole"),
    ],
)
def test_a_write_that_cannot_be_followed_is_refused(torch: Any, write: Callable[..., Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        lower(writes(torch, write), torch.randn(4, 4))


def scripted(torch: Any, body: str) -> Any:
    class Script(torch.jit.ScriptModule):
        pass

    script = Script()
    script.define(f"def forward(self, x):\n    y = x * 1\n{body}\n")
    return script


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    if bool(x.sum() > 0):\n        y.add_(1)\n    return y", "aten::add_ in a branch or a loop"),
        ("    z = [y]\n    y.add_(1)\n    return torch.cat(z) + y", "aten::add_ of a tensor that is in a list"),
        ("    y.reshape(-1).add_(1)\n    return y", "aten::add_ of what aten::reshape gives"),
    ],
)
def test_what_only_a_running_script_would_know_is_refused(torch: Any, body: str, message: str) -> None:
    script = scripted(torch, body)
    with pytest.raises(ModelError, match=message):
        lower(script, torch.randn(4, 4))


def test_a_script_writes_too(torch: Any, run: Any) -> None:
    script = scripted(torch, "    y[:, 1:].add_(2)\n    y[0].relu_()\n    return y")
    check(script, run, torch, torch.randn(4, 4))
