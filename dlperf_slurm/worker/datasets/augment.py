"""A decoded image -> the pixels that a model gets: crop, flip or shift, resize, normalize.

Images are Pillow's, in RGB; pixels are uint8 [height, width, channel]. Resizing uses Pillow's
bilinear filter, which averages when it shrinks an image.
"""

import math
from typing import TYPE_CHECKING, Tuple

from dlperf_slurm.worker.annotations import Array, RandomState

if TYPE_CHECKING:
    from PIL.Image import Image


# mean and standard deviation of ImageNet's training images: red, green, blue, for pixels in 0 ... 1
MEAN = (0.485, 0.456, 0.406)
STANDARD_DEVIATION = (0.229, 0.224, 0.225)

# Szegedy et al. 2015, section 6
CROP_RATIOS = (3 / 4, 4 / 3)
CROP_ATTEMPTS = 10

# fraction of the shorter side that validation uses: 224 of 256 pixels (Krizhevsky et al. 2012)
CENTRE_PART = 224 / 256

SHIFT_PART = 1 / 8

# left, upper, right, lower, in pixels from the upper left corner
Box = Tuple[float, float, float, float]


def crop_and_flip(image: "Image", size: int, random: RandomState, least_area: float) -> Array:
    """Crop by `choose_crop`, resize to [size, size, channel], and mirror with probability 1/2."""
    box = choose_crop(image.width, image.height, random, least_area)
    pixels = resize(image, size, box)
    return pixels[:, ::-1] if random.randint(2) else pixels


def choose_crop(width: int, height: int, random: RandomState, least_area: float) -> Box:
    """Draw a box with `least_area` ... 1 of the image's area and an aspect ratio of 3/4 ... 4/3.

    The area and the logarithm of the ratio are uniform, so that portrait is as likely as landscape.
    If no attempt fits into the image, it is the largest centred box with an allowed ratio. A box is
    (left, upper, right, lower) in pixels.
    """
    least_ratio, largest_ratio = CROP_RATIOS
    for _ in range(CROP_ATTEMPTS):
        area = width * height * random.uniform(least_area, 1)
        ratio = math.exp(random.uniform(math.log(least_ratio), math.log(largest_ratio)))
        box_width, box_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < box_width <= width and 0 < box_height <= height:
            left = random.randint(width - box_width + 1)
            upper = random.randint(height - box_height + 1)
            return left, upper, left + box_width, upper + box_height
    return find_centre(
        width, height, min(width, height * largest_ratio), min(height, width / least_ratio)
    )


def crop_centre(image: "Image", size: int) -> Array:
    """Resize the shorter side to size * 256/224 and return the centre crop [size, size, channel].

    Both in one step, so that nothing is rounded to pixels of the larger image.
    """
    side = min(image.width, image.height) * CENTRE_PART
    return resize(image, size, find_centre(image.width, image.height, side, side))


def find_centre(width: int, height: int, box_width: float, box_height: float) -> Box:
    """Return the centred box of this size in an image of `width` x `height` pixels."""
    left, upper = (width - box_width) / 2, (height - box_height) / 2
    return left, upper, left + box_width, upper + box_height


def shift(image: "Image", size: int, random: RandomState) -> Array:
    """Resize the whole image to [size, size, channel], and shift it at random by up to an eighth.

    Uncovered pixels are black.
    """
    import numpy

    margin = int(size * SHIFT_PART)
    side = size + 2 * margin
    framed: Array = numpy.zeros((side, side, 3), numpy.uint8)
    framed[margin : margin + size, margin : margin + size] = fit(image, size)
    upper, left = random.randint(2 * margin + 1, size=2)
    return framed[upper : upper + size, left : left + size]


def fit(image: "Image", size: int) -> Array:
    """Resize the whole image to [size, size, channel], whatever its aspect ratio."""
    return resize(image, size, (0, 0, image.width, image.height))


def resize(image: "Image", size: int, box: Box) -> Array:
    import numpy
    import PIL.Image

    return numpy.asarray(image.resize((size, size), PIL.Image.Resampling.BILINEAR, box=box))


def normalize(pixels: Array) -> Array:
    """Normalize uint8 [height, width, channel] by ImageNet to float32 [channel, height, width]."""
    import numpy

    scale = numpy.array([1 / (255 * deviation) for deviation in STANDARD_DEVIATION], numpy.float32)
    offset = numpy.array(
        [-mean / deviation for mean, deviation in zip(MEAN, STANDARD_DEVIATION)], numpy.float32
    )
    values = numpy.array(pixels.transpose(2, 0, 1), numpy.float32, order="C")
    values *= scale[:, None, None]
    values += offset[:, None, None]
    return values
