"""The AutoTVM templates that can be read, by name: those of TVM 0.7 to 0.19 and of this project."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from op_profiler.dataset.formats.autotvm_templates import (
    TaskReader,
    batch_matmul,
    convolution,
    deformable,
    dense,
    depthwise,
    gemm,
    transformed_winograd,
    transposed_convolution,
    winograd,
)


def _tile_of(divisor: int) -> Callable[[int], int]:
    """Return the tile rule of TVM's GPU templates: tile 4 for heights that are multiples of `divisor`, otherwise 2."""
    return lambda height: 2 if height % divisor else 4


_NCHW, _NHWC = ("NCHW", "NCHWc"), ("NHWC", "NHWCc")
_PLAIN = TaskReader(convolution, _NCHW, ("OIHW", "OIHWo"))
_CHANNELS_LAST = TaskReader(convolution, _NHWC, ("HWIO", "HWIOo"))
_BLOCKED = TaskReader(convolution, _NCHW, ("OIHW", "OIHWio", "OIHWioi"), "contrib_conv2d_nchwc")
_WINOGRAD = TaskReader(winograd, _NCHW, ("OIHW", "OIHWo"))
_DEPTHWISE = TaskReader(depthwise, _NCHW, ("OIHW", "OIHWo"))
_GEMM = TaskReader(gemm, ("NHWC",))
_DENSE = TaskReader(dense, weight=("NC", "NCn", "NCnc"))
_MATMUL = TaskReader(dense, weight=("NC",), op="matmul")
_BATCH_MATMUL = TaskReader(batch_matmul)
_TRANSFORMED = TaskReader(transformed_winograd, _NCHW, ("AAIO", "AAIOo"), tile=_tile_of(8))
_TRANSFORMED_LAST = dataclasses.replace(_TRANSFORMED, data=_NHWC)

TEMPLATES: dict[str, TaskReader] = {
    **dict.fromkeys(("conv1d_ncw", "group_conv1d_ncw"), TaskReader(convolution, ("NCW",), ("OIW",))),
    **dict.fromkeys(("conv1d_nwc", "group_conv1d_nwc"), TaskReader(convolution, ("NWC",), ("WIO",))),
    "conv1d_nwc_dsp": TaskReader(convolution, ("NWC",), ("WOI",)),
    **dict.fromkeys(("conv2d_nchw", "conv2d_nchw_spatial_pack", "conv2d_nchwc", "conv2d_nchw_dnnl"), _PLAIN),
    **dict.fromkeys(("conv2d_nchw_miopen", "conv2d_cudnn", "group_conv2d_nchw", "group_conv2d_nchwc"), _PLAIN),
    **dict.fromkeys(("conv2d_nhwc", "conv2d_nhwc_spatial_pack", "conv2d_nhwc_dnnl"), _CHANNELS_LAST),
    **dict.fromkeys(("conv2d_nhwc_tensorcore", "conv2d_NHWC_hybrid", "conv2d_NHWC_hybrid_SVE"), _CHANNELS_LAST),
    **dict.fromkeys(("conv2d_NHWC_hybrid_SME", "conv2d_NHWC_quantized_interleaved"), _CHANNELS_LAST),
    "conv2d_NHWC_quantized_native": _CHANNELS_LAST,
    "conv2d_nhwc_dsp": TaskReader(convolution, ("NHWC",), ("HWOI",)),
    "conv2d_hwcn": TaskReader(convolution, ("HWCN",), ("HWIO",)),
    "conv2d_HWNCnc_tensorcore": TaskReader(convolution, ("HWNC",), ("HWOI", "HWOIoi")),
    **dict.fromkeys(("conv2d_NCHWc", "conv2d_NCHWc_int8"), _BLOCKED),
    **dict.fromkeys(
        ("conv2d_NCHWc_int8.cuda", "group_conv2d_NCHWc_int8"), TaskReader(convolution, _NCHW, ("OIHW", "OIHWoi"))
    ),
    **dict.fromkeys(
        ("conv2d_packed", "group_conv2d_packed"), TaskReader(convolution, ("NCHWnc",), ("OIHWoi",))
    ),  # VTA's
    **dict.fromkeys(("conv2d_nchw_winograd", "conv2d_nchw_winograd_nnpack"), _WINOGRAD),
    "conv2d_nchw_winograd.mali": dataclasses.replace(_WINOGRAD, tile=_tile_of(4)),
    **dict.fromkeys(
        ("conv2d_nhwc_winograd", "conv2d_nhwc_winograd_direct", "conv2d_nhwc_winograd_tensorcore"),
        dataclasses.replace(_CHANNELS_LAST, call=winograd),
    ),
    "conv2d_nchw_winograd_without_weight_transform": _TRANSFORMED,
    "conv2d_nhwc_winograd_without_weight_transform": _TRANSFORMED_LAST,
    "conv2d_nhwc_winograd_direct_without_weight_transform": _TRANSFORMED_LAST,
    "conv2d_nhwc_winograd_tensorcore_without_weight_transform": _TRANSFORMED_LAST,
    "conv2d_NCHWc_winograd": TaskReader(transformed_winograd, ("NCHWc",), ("AAOIo",)),
    **dict.fromkeys(("conv2d_NHWC_hybrid_without_transform", "conv2d_NHWC_hybrid_SME_transposed_B"), _GEMM),
    "conv2d_NHWC_quantized_interleaved_without_transform": _GEMM,
    "conv2d_NHWC_quantized_native_without_transform": _GEMM,
    **dict.fromkeys(("depthwise_conv2d_nchw", "depthwise_conv2d_nchw_spatial_pack"), _DEPTHWISE),
    "depthwise_conv2d_nchwc": _DEPTHWISE,
    **dict.fromkeys(
        ("depthwise_conv2d_nhwc", "depthwise_conv2d_nhwc_dsp"), TaskReader(depthwise, _NHWC, ("HWOI", "HWOIo"))
    ),
    "depthwise_conv2d_NCHWc": TaskReader(depthwise, _NCHW, ("OIHW", "OIHWio"), "contrib_depthwise_conv2d_nchwc"),
    **dict.fromkeys(("conv3d_ncdhw", "conv3d_cudnn"), TaskReader(convolution, ("NCDHW",), ("OIDHW",))),
    "conv3d_ncdhw_winograd": TaskReader(convolution, ("NCDHW",), ("OIDHW",)),
    **dict.fromkeys(("conv3d_ndhwc", "conv3d_ndhwc_tensorcore"), TaskReader(convolution, ("NDHWC",), ("DHWIO",))),
    "conv1d_transpose_nchw": TaskReader(transposed_convolution, ("NCW",), ("IOW",)),
    "conv2d_transpose_nchw": TaskReader(transposed_convolution, ("NCHW",), ("IOHW",)),
    "conv2d_transpose_nchwc": TaskReader(transposed_convolution, _NCHW, ("IOHW", "IOHWo")),
    "conv2d_transpose_packed": TaskReader(transposed_convolution, ("NCHWnc",), ("OIHWoi",)),  # VTA's
    "conv3d_transpose_ncdhw": TaskReader(transposed_convolution, ("NCDHW",), ("IODHW",)),
    "deformable_conv2d_nchw": TaskReader(deformable, ("NCHW",), ("OIHW",)),
    **dict.fromkeys(("dense", "dense_nopack", "dense_pack", "dense_int8", "dense_gemm", "dense_dsp"), _DENSE),
    **dict.fromkeys(("dense_small_batch", "dense_large_batch", "dense_tensorcore", "dense_cublas"), _DENSE),
    **dict.fromkeys(("dense_cblas", "dense_mkl", "dense_dnnl", "dense_rocblas"), _DENSE),
    **dict.fromkeys(("matmul", "matmul_default", "matmul_cublas", "matmul_cblas", "matmul_mkl"), _MATMUL),
    "matmul_dnnl": _MATMUL,
    **dict.fromkeys(("batch_matmul", "batch_matmul_int8", "batch_matmul_tensorcore"), _BATCH_MATMUL),
    **dict.fromkeys(("batch_matmul_cublas", "batch_matmul_cblas", "batch_matmul_mkl"), _BATCH_MATMUL),
    "batch_matmul_rocblas": _BATCH_MATMUL,
}
"""Task readers by template name; ``NAME.TARGET`` where templates of different targets share a name."""
