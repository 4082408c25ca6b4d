"""List the operations that a GPU has in low precision and a CPU does not, by the version of torch.

`benchmarks/half_on_cpu.py` measures the column of the torch that runs it, and marks what is different here. Between two
versions that were measured, the older one counts.
"""

from __future__ import annotations

from functools import cache

Version = tuple[int, int]

VERSIONS: tuple[Version, ...] = (
    (2, 0), (2, 1), (2, 2), (2, 3), (2, 4), (2, 5), (2, 6), (2, 13), (2, 15),
)  # fmt: skip
# By type, the operations that fail alike, with a column per version: x where a GPU has them and a CPU does not.
_FAIL = {
    "float16": {
        "-x-------": "multi_head_attention_forward",
        "x--------": (
            "acos acosh addcmul asin asinh atan atanh binary_cross_entropy_with_logits ceil celu clamp cos "
            "cosh cosine_embedding_loss cosine_similarity digamma elu erf erfc erfinv exp expm1 floor "
            "gaussian_nll_loss gelu glu hardshrink hardsigmoid hardswish hardtanh hinge_embedding_loss i0 "
            "isin leaky_relu lerp lgamma log log10 log1p log2 logsigmoid logsumexp margin_ranking_loss mish "
            "multilabel_soft_margin_loss mvlgamma normalize poisson_nll_loss polygamma prelu relu relu6 round "
            "rsqrt selu sigmoid silu sin sinc sinh soft_margin_loss softplus softshrink sqrt tan tanh "
            "tanhshrink threshold triplet_margin_loss triplet_margin_with_distance_loss trunc unique "
            "unique_consecutive"
        ),
        "xx-------": (
            "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d addbmm addcdiv "
            "addmm addmv alpha_dropout aminmax atan2 baddbmm batch_norm bernoulli bilinear bmm conv1d conv2d "
            "conv_transpose1d conv_transpose2d conv_transpose3d corrcoef cov cross cummax cummin cumprod "
            "cumsum cumulative_trapezoid dot dropout dropout2d einsum group_norm hypot inner instance_norm "
            "kthvalue linear log_softmax logaddexp logcumsumexp logit matmul matrix_exp max_pool1d max_pool2d "
            "max_pool2d_with_indices_backward max_pool3d median mm multinomial mv nanmedian native_batch_norm "
            "prod scaled_dot_product_attention softmax softmin tensordot topk vdot"
        ),
        "xxx------": (
            "avg_pool1d avg_pool2d fractional_max_pool2d fractional_max_pool3d interpolate layer_norm "
            "native_layer_norm upsample_bilinear upsample_nearest"
        ),
        "xxxx-----": "binary_cross_entropy cross_entropy nll_loss rrelu",
        "xxxxx----": "max_unpool1d max_unpool2d max_unpool3d",
        "xxxxxx---": "adaptive_max_pool3d grid_sample grid_sampler_2d",
        "xxxxxxx--": "trace",
        "xxxxxxxxx": (
            "avg_pool3d fft.fft fft.fft2 fft.fftn fft.hfft fft.hfft2 fft.hfftn fft.ifft fft.ifft2 fft.ifftn "
            "fft.ihfft fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn fft.rfft fft.rfft2 fft.rfftn "
            "local_response_norm multi_margin_loss multilabel_margin_loss stft"
        ),
    },
    "bfloat16": {
        "--------x": (
            "fft.fft fft.fft2 fft.fftn fft.hfft fft.hfft2 fft.hfftn fft.ifft fft.ifft2 fft.ifftn fft.ihfft "
            "fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn fft.rfft fft.rfft2 fft.rfftn stft"
        ),
        "--xxxx---": "grid_sample grid_sampler_2d",
        "x--------": "adaptive_max_pool3d max_pool3d",
        "xxxx-----": "binary_cross_entropy",
        "xxxxxx---": "mse_loss",
        "xxxxxxx--": "trace",
        "xxxxxxxxx": "avg_pool3d local_response_norm multi_margin_loss multilabel_margin_loss",
    },
}
# Layers of torch.nn that are not named after their operation.
_LAYERS = {
    "BatchNorm1d": "batch_norm", "BatchNorm2d": "batch_norm", "BatchNorm3d": "batch_norm",
    "BCELoss": "binary_cross_entropy", "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "InstanceNorm1d": "instance_norm", "InstanceNorm2d": "instance_norm", "InstanceNorm3d": "instance_norm",
    "Upsample": "interpolate",
}  # fmt: skip


@cache
def _columns(dtype: str) -> dict[str, str]:
    """Return the columns of each operation."""
    return {name: columns for columns, names in _FAIL.get(dtype, {}).items() for name in names.split()}


def _column(version: Version) -> int:
    """Return the number of the column for a version: that of the newest one that is not newer."""
    return max((number for number, each in enumerate(VERSIONS) if each <= version), default=0)


def fails(dtype: str, name: str, version: Version) -> bool:
    """Return whether a GPU has an operation in a type that a CPU does not have it in, with a version of torch."""
    columns = _columns(dtype).get(name)
    return columns is not None and columns[_column(version)] == "x"


def since(dtype: str, name: str, version: Version) -> Version | None:
    """Return the first version after another that was seen to have an operation, None if there is none."""
    columns = _columns(dtype)[name]
    later = range(_column(version), len(VERSIONS))
    return next((VERSIONS[number] for number in later if columns[number] != "x"), None)


@cache
def missing(version: Version) -> frozenset[str]:
    """Return the operations that a CPU does not have in a type of low precision."""
    return frozenset(name for dtype in _FAIL for name in _columns(dtype) if fails(dtype, name, version))


@cache
def operations_of(layer: str) -> tuple[str, ...]:
    """Return the operations of the table that a layer of torch.nn computes."""
    if layer in _LAYERS:
        return (_LAYERS[layer],)
    names = {layer.lower(), layer.lower().removesuffix("loss")}
    return tuple(name for each in sorted(names) for name in _by_letters().get(each, ()))


@cache
def _by_letters() -> dict[str, list[str]]:
    """Return the operations by their letters: `avg_pool3d` by `avgpool3d`."""
    found: dict[str, list[str]] = {}
    for name in sorted({name for dtype in _FAIL for name in _columns(dtype)}):
        found.setdefault(name.replace("_", ""), []).append(name)
    return found
