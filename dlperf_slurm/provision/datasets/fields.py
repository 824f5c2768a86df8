"""A seed -> random images whose power falls with frequency as in photographs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

if TYPE_CHECKING:
    from numpy.random import RandomState
    from numpy.typing import NDArray

FIELDS = 4

# Chosen so that JPEG files at quality 90 are as large as those of ImageNet, about 110 kB each
# (138 GB for 1.28 million), at 500 x 375 pixels.
LUMINANCE_DEVIATION = 45.0
CHROMINANCE_DEVIATION = 12.0


@dataclass(frozen=True)
class Fields:
    """A few fields of N(0, 1), which repeat at their borders: float32 [field, side, side]."""

    values: "NDArray[Any]"

    @property
    def side(self) -> int:
        return int(self.values.shape[1])


def make_fields(least_side: int, random: "RandomState") -> Fields:
    """Fields at least so large, a power of two."""
    side = 1 << (least_side - 1).bit_length()
    return Fields(numpy.stack([_make_field(side, random) for _ in range(FIELDS)]))


def _make_field(side: int, random: "RandomState") -> "NDArray[Any]":
    """Its power is 1 / frequency^2, as natural images have it (Field 1987)."""
    rows, columns = numpy.fft.fftfreq(side)[:, None], numpy.fft.rfftfreq(side)[None]
    frequency = numpy.hypot(rows, columns)
    # no mean
    frequency[0, 0] = numpy.inf
    real, imaginary = random.standard_normal((2, *frequency.shape))
    field = numpy.fft.irfft2((real + 1j * imaginary) / frequency, (side, side))
    return (field / field.std()).astype(numpy.float32)


def draw_image(fields: Fields, width: int, height: int, random: "RandomState") -> "NDArray[Any]":
    """uint8 [height, width, 3]: windows of the fields, one upon the other, at random places."""

    def draw() -> "NDArray[Any]":
        field = fields.values[random.randint(FIELDS)]
        upper, left = random.randint(fields.side, size=2)
        rows = field.take(numpy.arange(upper, upper + height), axis=0, mode="wrap")
        return rows.take(numpy.arange(left, left + width), axis=1, mode="wrap")

    luminance = (draw() + draw()) * (LUMINANCE_DEVIATION / 2**0.5)
    colours = numpy.stack([draw() for _ in range(3)], axis=2) * CHROMINANCE_DEVIATION
    pixels = luminance[:, :, None] + colours + random.uniform(90, 150)
    return pixels.clip(0, 255).astype(numpy.uint8)
