"""GPUs by name: what their makers say of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One accelerator.

    Attributes:
        bandwidth: bytes per second of its memory.
        flops: dense bfloat16 operations per second, without sparsity.
        memory: bytes.
        link: bytes per second to the others, one way.
        source: where the numbers are from.
    """

    bandwidth: float
    flops: float
    memory: float
    link: float
    source: str


GPUS = {
    "h100": Gpu(3.35e12, 989e12, 80e9, 450e9, "NVIDIA H100 data sheet, SXM5; NVLink 900 GB/s both ways"),
    "h200": Gpu(4.8e12, 989e12, 141e9, 450e9, "NVIDIA H200 data sheet, SXM; NVLink 900 GB/s both ways"),
    "a100-80gb": Gpu(2.039e12, 312e12, 80e9, 300e9, "NVIDIA A100 data sheet, SXM; NVLink 600 GB/s both ways"),
    "l40s": Gpu(864e9, 362e12, 48e9, 32e9, "NVIDIA L40S data sheet; PCIe 4.0 x16"),
    "l4": Gpu(300e9, 121e12, 24e9, 32e9, "NVIDIA L4 data sheet; PCIe 4.0 x16"),
    "a10": Gpu(600e9, 125e12, 24e9, 32e9, "NVIDIA A10 data sheet; PCIe 4.0 x16"),
    "rtx-4090": Gpu(1.008e12, 165.2e12, 24e9, 32e9, "NVIDIA Ada GPU architecture paper, FP32 accumulate"),
}
