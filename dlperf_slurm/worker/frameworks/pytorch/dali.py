"""A folder of images -> NVIDIA DALI's pipeline over it: batches of tensors on the device.

On a GPU, DALI decodes on the GPU too. Tested with DALI 2.4 on the CPU.
"""

import os
from typing import Any, Iterator

import torch

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets import augment
from dlperf_slurm.worker.datasets.description import CROP_AND_FLIP, TRAIN_SPLIT, DataError
from dlperf_slurm.worker.datasets.images import ImageModel, describe_images
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.pytorch.loader import Tensors


def open_dali(
    case: Case,
    rank_info: RankInfo,
    definition: ImageModel,
    device: torch.device,
    image_type: torch.dtype,
) -> Iterator[Tensors]:
    """Yield batches of this rank's share of the images without end, in an order that DALI draws.

    A batch is {"images", "labels"} on `device`, images of type `image_type` and of the definition's
    size. `data_workers` is DALI's thread count, `prefetch_batches` its queue depth. Augmentation is
    that of `worker.datasets` for photographs, with random numbers from DALI. Raises DataError if
    DALI is not installed, or the data set asks for another augmentation.
    """
    try:
        from nvidia.dali.plugin.pytorch import DALIGenericIterator
    except ImportError as error:
        raise DataError(
            "data 'dali' needs NVIDIA DALI, which this environment lacks: "
            "pip install nvidia-dali-cuda120, or the package for your CUDA version"
        ) from error
    pipeline = make_pipeline(case, rank_info, definition, device)
    # size -1: epochs follow each other without an end
    for (batch,) in DALIGenericIterator([pipeline], ["images", "labels"], size=-1):
        images = batch["images"].to(image_type)
        yield {"images": images, "labels": batch["labels"].flatten().long()}


def make_pipeline(
    case: Case, rank_info: RankInfo, definition: ImageModel, device: torch.device
) -> Any:
    """Build the DALI pipeline: read this rank's shard, decode, augment, normalize to float32 NCHW.

    Raises DataError if the data set asks for an augmentation other than that for photographs.
    """
    from nvidia.dali import fn, pipeline_def, types

    description = describe_images(case.data_dir)
    if description.augmentation != CROP_AND_FLIP:
        raise DataError(
            f"{case.data_dir!r}: data 'dali' supports only augmentation {CROP_AND_FLIP!r}, but "
            f"this data set has {description.augmentation!r}; use data 'folder'"
        )
    is_gpu = device.type == "cuda"

    @pipeline_def
    def read_images() -> Any:
        files, labels = fn.readers.file(
            file_root=os.path.join(case.data_dir, TRAIN_SPLIT),
            shard_id=rank_info.rank,
            num_shards=rank_info.world_size,
            random_shuffle=True,
            seed=case.seed,
        )
        images = fn.decoders.image_random_crop(
            files,
            device="mixed" if is_gpu else "cpu",
            random_area=[description.least_crop_area, 1.0],
            random_aspect_ratio=list(augment.CROP_RATIOS),
            output_type=types.RGB,
        )
        size = definition.image_size
        images = fn.resize(images, resize_x=size, resize_y=size)
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=[255 * value for value in augment.MEAN],
            std=[255 * value for value in augment.STANDARD_DEVIATION],
            mirror=fn.random.coin_flip(),
        )
        return images, labels.gpu() if is_gpu else labels

    return read_images(
        batch_size=case.axes.batch_size,
        num_threads=case.axes.data_workers,
        device_id=device.index if is_gpu else None,
        prefetch_queue_depth=case.axes.prefetch_batches,
        seed=case.seed,
    )
