"""A device name as frameworks report it -> the vendor's published peak performance.

From public data sheets, without sparsity: 10^12 floating-point operations per second by number
format, and memory bandwidth. A device is what one rank uses: one of the two dies of an MI250X.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class PublishedPeak:
    """Peak of a device in its vendor's data sheet; `tflops` by supported number format."""

    tflops: Mapping[str, float]
    memory_gb_per_s: float
    source: str


def _list(fp32: float, tf32: float = 0, bf16: float = 0, fp16: float = 0) -> dict[str, float]:
    """Return the peaks in TFLOP/s by number format, without formats that are 0 (not supported)."""
    told = {"fp32": fp32, "tf32": tf32, "bf16": bf16, "fp16": fp16}
    return {name: value for name, value in told.items() if value}


_P100 = "NVIDIA Tesla P100 data sheet"
_V100 = "NVIDIA V100 data sheet"
_A100 = "NVIDIA A100 data sheet"
_H100 = "NVIDIA H100 data sheet"
_GH200 = "NVIDIA GH200 data sheet"
# products of 16 bits with sums of 32 bits
_ADA = "NVIDIA Ada GPU architecture white paper"
_L40 = "NVIDIA L40 and L40S data sheets"

# the first pattern found in the device name applies; fp32 of AMD is that of its matrix units
PUBLISHED: tuple[tuple[str, PublishedPeak], ...] = (
    ("P100-SXM2", PublishedPeak(_list(10.6, fp16=21.2), 732, _P100)),
    ("P100-PCIE-16GB", PublishedPeak(_list(9.3, fp16=18.7), 732, _P100)),
    ("V100S-PCIE", PublishedPeak(_list(16.4, fp16=130), 1134, _V100)),
    ("V100-SXM2", PublishedPeak(_list(15.7, fp16=125), 900, _V100)),
    ("V100-PCIE", PublishedPeak(_list(14.0, fp16=112), 900, _V100)),
    (r"\bT4\b", PublishedPeak(_list(8.1, fp16=65), 320, "NVIDIA T4 data sheet")),
    ("A100-SXM4-40GB", PublishedPeak(_list(19.5, 156, 312, 312), 1555, _A100)),
    ("A100-SXM4-80GB", PublishedPeak(_list(19.5, 156, 312, 312), 2039, _A100)),
    ("A100-PCIE-40GB", PublishedPeak(_list(19.5, 156, 312, 312), 1555, _A100)),
    ("A100 80GB PCIe", PublishedPeak(_list(19.5, 156, 312, 312), 1935, _A100)),
    (r"\bA10\b", PublishedPeak(_list(31.2, 62.5, 125, 125), 600, "NVIDIA A10 data sheet")),
    (r"\bA30\b", PublishedPeak(_list(10.3, 82, 165, 165), 933, "NVIDIA A30 data sheet")),
    (r"\bA40\b", PublishedPeak(_list(37.4, 74.8, 149.7, 149.7), 696, "NVIDIA A40 data sheet")),
    (r"\bL4\b", PublishedPeak(_list(30.3, 60, 121, 121), 300, "NVIDIA L4 data sheet")),
    (r"\bL40S\b", PublishedPeak(_list(91.6, 183, 362, 362), 864, _L40)),
    (r"\bL40\b", PublishedPeak(_list(90.5, 90.5, 181, 181), 864, _L40)),
    ("H100 PCIe", PublishedPeak(_list(51, 378, 756, 756), 2000, _H100)),
    ("H100 NVL", PublishedPeak(_list(60, 417.5, 835.5, 835.5), 3938, "NVIDIA H100 NVL data sheet")),
    ("H200 NVL", PublishedPeak(_list(60, 417.5, 835.5, 835.5), 4800, "NVIDIA H200 data sheet")),
    (r"\bH20$", PublishedPeak(_list(44, 74, 148, 148), 4000, "NVIDIA H20 data sheet")),
    ("GH200 480GB", PublishedPeak(_list(67, 494.5, 989.5, 989.5), 4000, _GH200)),
    ("GH200 144G", PublishedPeak(_list(67, 494.5, 989.5, 989.5), 4900, _GH200)),
    (r"\bGB200\b", PublishedPeak(_list(80, 1250, 2500, 2500), 8000, "NVIDIA GB200 data sheet")),
    (r"\bB200\b", PublishedPeak(_list(75, 1125, 2250, 2250), 8000, "NVIDIA HGX B200 data sheet")),
    (
        "RTX A6000",
        PublishedPeak(_list(38.7, 77.4, 154.8, 154.8), 768, "NVIDIA RTX A6000 data sheet"),
    ),
    ("RTX 6000 Ada", PublishedPeak(_list(91.1, 182.1, 364.2, 364.2), 960, _ADA)),
    ("RTX 3090$", PublishedPeak(_list(35.6, 35.6, 71, 71), 936, "NVIDIA GA102 white paper")),
    ("RTX 4090$", PublishedPeak(_list(82.6, 82.6, 165.2, 165.2), 1008, _ADA)),
    (
        "RTX 5090$",
        PublishedPeak(_list(104.8, 104.8, 209.5, 209.5), 1792, "NVIDIA RTX Blackwell white paper"),
    ),
    ("H100 80GB HBM3", PublishedPeak(_list(67, 494.5, 989.5, 989.5), 3350, _H100)),
    (r"\bH200$", PublishedPeak(_list(67, 494.5, 989.5, 989.5), 4800, "NVIDIA H200 data sheet")),
    ("MI100", PublishedPeak(_list(46.1, bf16=92.3, fp16=184.6), 1229, "AMD MI100 data sheet")),
    ("MI250X", PublishedPeak(_list(47.9, 0, 191.5, 191.5), 1638, "AMD MI250X data sheet")),
    (
        "MI300X",
        PublishedPeak(_list(163.4, 653.7, 1307.4, 1307.4), 5300, "AMD MI300X data sheet"),
    ),
    (
        "MI325X",
        PublishedPeak(_list(163.4, 653.7, 1307.4, 1307.4), 6000, "AMD MI325X data sheet"),
    ),
)


def find_published_peak(device_name: str) -> Optional[PublishedPeak]:
    """Return the vendor's peak of a device, "NVIDIA H200"; None if unknown or a MIG instance."""
    if "MIG" in device_name:
        return None
    found = (peak for pattern, peak in PUBLISHED if re.search(pattern, device_name))
    return next(found, None)
