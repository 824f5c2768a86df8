"""An environment's CUDA wheels -> stub libraries of NVIDIA's, for rehearsals without a GPU.

Each stub has the name and all functions of the real library. Those in `libraries/` are written by
hand; the others are read from the wheel, and either succeed without doing anything, if that is
enough, or fail and print that on stderr. A major version that `LIBRARIES` does not name is refused.
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

SOURCES = Path(__file__).with_name("libraries")
# the runtime's headers include nvcc's, which torch's wheels have in Triton
INCLUDES = ("nvidia/*/include", "triton/backends/nvidia/include")
DRIVER = "libcuda.so.1"
# check the functions against the declarations in NVIDIA's headers
OPTIONS = (
    "-shared",
    "-fPIC",
    "-O1",
    "-Werror=implicit-function-declaration",
    "-Werror=incompatible-pointer-types",
)


class BuildError(RuntimeError):
    """The stubs cannot be built; the text says why."""


@dataclass(frozen=True)
class Library:
    """A library of the wheels and its stub.

    `quiet` are functions that succeed and do nothing, `working` those that do something on the
    device and are traced as a call; both are patterns of whole names. `error` is what all other
    functions return.
    """

    name: str
    folder: str
    sources: tuple[str, ...]
    error: int
    is_versioned: bool
    quiet: str
    working: str = "(?!)"


LIBRARIES = (
    Library(
        "libcudart.so.13",
        "nvidia/cu13/lib",
        ("trace.c", "devices.c", "memory.c", "streams.c", "kernels.c"),
        error=801,
        is_versioned=True,
        quiet=r"cuda(Event|Stream)Destroy|cudaStreamWaitEvent|cuda(Func|Kernel)SetAttribute\w*|"
        r"cudaDevice(Enable|Disable)PeerAccess|cudaProfiler\w+|cudaMemPool(Set|Get)\w+|"
        r"cudaHost(Unr|R)egister|cudaGraph(Exec)?Destroy|cudaLibraryUnload",
    ),
    Library(
        "libcublasLt.so.13",
        "nvidia/cu13/lib",
        ("cublas_lt.c",),
        error=15,
        is_versioned=True,
        quiet=r"cublasLt\w*(Destroy|SetAttribute)",
    ),
    Library(
        "libcublas.so.13",
        "nvidia/cu13/lib",
        ("cublas.c",),
        error=15,
        is_versioned=True,
        quiet=r"cublas(Destroy_v2|Set(Stream|Workspace|PointerMode)_v2|SetSmCountTarget)",
    ),
    Library(
        "libcudnn.so.9",
        "nvidia/cudnn/lib",
        ("cudnn.c",),
        error=3000,
        is_versioned=True,
        quiet=r"cudnn(Destroy|Set)\w*",
        working=r"cudnnBatchNormalization\w+",
    ),
    Library(
        "libnccl.so.2",
        "nvidia/nccl/lib",
        ("nccl.c",),
        error=3,
        is_versioned=False,
        quiet=r"ncclGroup(Start|End)|ncclComm(Finalize|Destroy|Abort|Register|Deregister)",
    ),
    Library(
        DRIVER,
        "nvidia/cu13/include",
        ("driver.c",),
        error=801,
        is_versioned=False,
        quiet=r"(?!)",
    ),
)
# the CUDA 12 wheels of TensorFlow 2 have a folder for each library
FOLDERS_12 = {
    "libcudart": "nvidia/cuda_runtime/lib",
    "libcublasLt": "nvidia/cublas/lib",
    "libcublas": "nvidia/cublas/lib",
    "libcuda": "nvidia/cuda_runtime/include",
}
FOR_TENSORFLOW = {
    DRIVER: {
        "sources": ("driver.c", "stream_executor.c"),
        "quiet": r"cuEventDestroy_v2|cuStreamWaitEvent",
    },
    "libcudnn.so.9": {
        "quiet": r"cudnn(Destroy|Set)\w*|cudnn\w+VersionCheck",
        "working": r"cudnn(BatchNormalization|Pooling(For|Back)ward)\w*",
    },
}
LIBRARIES_12 = tuple(
    replace(
        one,
        name=one.name.replace(".so.13", ".so.12"),
        folder=FOLDERS_12.get(one.name.partition(".")[0], one.folder),
        **FOR_TENSORFLOW.get(one.name, {}),
    )
    for one in LIBRARIES
)


def build(environment: Path, folder: Path, libraries: Sequence[Library]) -> list[Path]:
    """Build the stubs, in the order for LD_PRELOAD; raises BuildError."""
    packages = find_packages(environment)
    for program in ("gcc", "nm"):
        if shutil.which(program) is None:
            raise BuildError(f"{program} is missing: apt-get install gcc")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return [build_library(library, packages, folder) for library in libraries]


def build_nvml(source: Path, folder: Path) -> None:
    """Build the NVML stub of the tests beside the others; it needs no header."""
    target = folder / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", target, source], check=True)


def list_versions(environment: Path) -> dict[str, str]:
    """Return the versions of the packages that a rehearsal tests."""
    names = (one.name for one in find_packages(environment).glob("*.dist-info"))
    packages = (name.removesuffix(".dist-info").rpartition("-") for name in names)
    wanted = re.compile("torch|jax(lib)?|tensorflow|nvidia_(cublas|cudnn|nccl|cuda_runtime).*")
    return {name: version for name, _, version in sorted(packages) if wanted.fullmatch(name)}


def find_packages(environment: Path) -> Path:
    found = next(environment.glob("lib/python3.*/site-packages"), None)
    if found is None:
        framework = environment.name.removesuffix("-cuda")
        made_by = f"dlperf-slurm env create --cuda {framework}"
        raise BuildError(f"{environment} is no environment: {made_by}")
    return found


def build_library(library: Library, packages: Path, folder: Path) -> Path:
    """Build one stub; raises BuildError if the wheel has another major version."""
    names = list_functions(library, packages)
    options = [*OPTIONS, f"-Wl,-soname,{library.name}", f"-I{SOURCES}"]
    options += [f"-I{found}" for include in INCLUDES for found in packages.glob(include)]
    if library.is_versioned:
        script = folder / f"{library.name}.map"
        script.write_text(f"{library.name} {{ global: *; }};\n", encoding="utf-8")
        options.append(f"-Wl,--version-script={script}")
    sources = [SOURCES / source for source in library.sources]
    target = folder / library.name
    # the headers rename some functions: cuMemAlloc is cuMemAlloc_v2
    link(target, options, sources)
    others = sorted(set(names) - read_exported(target))
    generated = folder / f"{library.name}.others.c"
    generated.write_text(write_others(library, others), encoding="utf-8")
    link(target, options, [*sources, generated])
    return target


def link(target: Path, options: Sequence[str], sources: Sequence[Path]) -> None:
    """Compile the sources into one library; raises BuildError with gcc's error."""
    done = subprocess.run(
        ["gcc", *options, "-o", target, *sources, "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise BuildError(f"{target.name} cannot be built:\n{done.stderr[-2000:]}")


def list_functions(library: Library, packages: Path) -> list[str]:
    """List the exports of the real library; for the driver, which is in no wheel, of its header."""
    if library.name == DRIVER:
        header = (packages / library.folder / "cuda.h").read_text("utf-8", errors="replace")
        names = set(re.findall(r"CUDAAPI\s+(cu\w+)\s*\(", header))
        # and the names that the header renames them to
        return sorted(
            names | set(re.findall(r"#define\s+cu\w+\s+(?:\w+\()?(cu\w+_v\d\w*)", header))
        )
    path = packages / library.folder / library.name
    if not path.exists():
        stem = library.name.partition(".so.")[0]
        found = sorted(one.name for one in packages.glob(f"nvidia/*/lib/{stem}.so.*"))
        raise BuildError(
            f"the rehearsal knows {library.name}, and {packages} has {', '.join(found) or 'none'}"
        )
    names = read_exported(path)
    return sorted(name for name in names if re.match("(__cuda|cuda|cublas|cudnn|nccl)", name))


def read_exported(library: Path) -> set[str]:
    """Return the names of the functions that a library exports."""
    done = subprocess.run(
        ["nm", "-D", "--defined-only", library], stdout=subprocess.PIPE, text=True, check=True
    )
    symbols = [line.split() for line in done.stdout.splitlines()]
    return {words[-1].partition("@")[0] for words in symbols if words[-2] in "TWi"}


def write_others(library: Library, names: list[str]) -> str:
    """Return C code of the functions that are not written by hand; they accept any arguments."""
    lines = ['#include "rehearsal.h"', ""]
    for name in names:
        if re.fullmatch(library.quiet, name):
            body = "return 0;"
        elif re.fullmatch(library.working, name):
            body = f'rehearsal_record("call by={name}"); rehearsal_work(5000); return 0;'
        else:
            body = f'rehearsal_refuse("{name}"); return {library.error};'
        lines.append(f"long {name}(void) {{ {body} }}")
    return "\n".join(lines) + "\n"
