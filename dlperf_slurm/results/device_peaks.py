"""A device name as frameworks report it -> the vendor's published peak performance.

From public data sheets, without sparsity. A device is what one rank uses: one of the two dies of an
MI250X.
"""

import re

# 10^12 floating-point operations per second in fp32, tf32, bf16 and fp16, 0 if not supported, by
# pattern of the device name, of which the first one found applies; products of 16 bits have sums of
# 32 bits, fp32 of AMD is that of its matrix units
PUBLISHED: dict[str, tuple[float, float, float, float]] = {
    "P100-SXM2": (10.6, 0, 0, 21.2),  # NVIDIA Tesla P100 data sheet
    "P100-PCIE-16GB": (9.3, 0, 0, 18.7),  # NVIDIA Tesla P100 data sheet
    "V100S-PCIE": (16.4, 0, 0, 130),  # NVIDIA V100 data sheet
    "V100-SXM2": (15.7, 0, 0, 125),  # NVIDIA V100 data sheet
    "V100-PCIE": (14, 0, 0, 112),  # NVIDIA V100 data sheet
    r"\bT4\b": (8.1, 0, 0, 65),  # NVIDIA T4 data sheet
    "A100-SXM4-40GB": (19.5, 156, 312, 312),  # NVIDIA A100 data sheet
    "A100-SXM4-80GB": (19.5, 156, 312, 312),  # NVIDIA A100 data sheet
    "A100-PCIE-40GB": (19.5, 156, 312, 312),  # NVIDIA A100 data sheet
    "A100 80GB PCIe": (19.5, 156, 312, 312),  # NVIDIA A100 data sheet
    r"\bA10\b": (31.2, 62.5, 125, 125),  # NVIDIA A10 data sheet
    r"\bA30\b": (10.3, 82, 165, 165),  # NVIDIA A30 data sheet
    r"\bA40\b": (37.4, 74.8, 149.7, 149.7),  # NVIDIA A40 data sheet
    r"\bL4\b": (30.3, 60, 121, 121),  # NVIDIA L4 data sheet
    r"\bL40S\b": (91.6, 183, 362, 362),  # NVIDIA L40 and L40S data sheets
    r"\bL40\b": (90.5, 90.5, 181, 181),  # NVIDIA L40 and L40S data sheets
    "H100 PCIe": (51, 378, 756, 756),  # NVIDIA H100 data sheet
    "H100 NVL": (60, 417.5, 835.5, 835.5),  # NVIDIA H100 NVL data sheet
    "H200 NVL": (60, 417.5, 835.5, 835.5),  # NVIDIA H200 data sheet
    r"\bH20$": (44, 74, 148, 148),  # NVIDIA H20 data sheet
    "GH200 480GB": (67, 494.5, 989.5, 989.5),  # NVIDIA GH200 data sheet
    "GH200 144G": (67, 494.5, 989.5, 989.5),  # NVIDIA GH200 data sheet
    r"\bGB200\b": (80, 1250, 2500, 2500),  # NVIDIA GB200 data sheet
    r"\bB200\b": (75, 1125, 2250, 2250),  # NVIDIA HGX B200 data sheet
    "RTX A6000": (38.7, 77.4, 154.8, 154.8),  # NVIDIA RTX A6000 data sheet
    "RTX 6000 Ada": (91.1, 182.1, 364.2, 364.2),  # NVIDIA Ada GPU architecture white paper
    "RTX 3090$": (35.6, 35.6, 71, 71),  # NVIDIA GA102 white paper
    "RTX 4090$": (82.6, 82.6, 165.2, 165.2),  # NVIDIA Ada GPU architecture white paper
    "RTX 5090$": (104.8, 104.8, 209.5, 209.5),  # NVIDIA RTX Blackwell white paper
    "H100 80GB HBM3": (67, 494.5, 989.5, 989.5),  # NVIDIA H100 data sheet
    r"\bH200$": (67, 494.5, 989.5, 989.5),  # NVIDIA H200 data sheet
    "MI100": (46.1, 0, 92.3, 184.6),  # AMD MI100 data sheet
    "MI250X": (47.9, 0, 191.5, 191.5),  # AMD MI250X data sheet
    "MI300X": (163.4, 653.7, 1307.4, 1307.4),  # AMD MI300X data sheet
    "MI325X": (163.4, 653.7, 1307.4, 1307.4),  # AMD MI325X data sheet
}


def find_published_tflops(device_name: str) -> dict[str, float]:
    """Return the vendor's peaks of a device such as "NVIDIA H200": TFLOP/s by number format.

    Only formats ("fp32", ...) that it supports; {} if the device is unknown or a MIG instance.
    """
    if "MIG" in device_name:
        return {}
    found = (peaks for pattern, peaks in PUBLISHED.items() if re.search(pattern, device_name))
    named = zip(("fp32", "tf32", "bf16", "fp16"), next(found, ()))
    return {name: value for name, value in named if value}
