"""An environment's CUDA wheels -> stand-ins for NVIDIA's libraries, for rehearsals without a GPU.

    python tests/rehearsal/build.py ENVIRONMENT FOLDER

Each library has the real one's name and all of its functions: those of `libraries/` are written
for it, and of the others, whose names are read from the wheel, those that need do nothing succeed
and all others fail, and say so on stderr. Another major version than `LIBRARIES` names is refused.
"""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).with_name("libraries")
INCLUDES = (
    "nvidia/cu13/include",
    "nvidia/cudnn/include",
    "nvidia/nccl/include",
    # has the headers of nvcc too, which those of the runtime include
    "triton/backends/nvidia/include",
)
DRIVER_HEADER = "nvidia/cu13/include/cuda.h"
DRIVER = "libcuda.so.1"
# functions are checked against how NVIDIA's headers declare them
OPTIONS = (
    "-shared",
    "-fPIC",
    "-O1",
    "-Werror=implicit-function-declaration",
    "-Werror=incompatible-pointer-types",
)


class BuildError(RuntimeError):
    """What a rehearsal cannot be built from, and what it can."""


@dataclass(frozen=True)
class Library:
    """A library of the wheels, and what stands in for it.

    `quiet` are functions that succeed and do nothing, `working` those that do something on the
    device and are written down as a call; both as patterns of whole names. `error` is what the
    others return.
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
        quiet=r"cublasLt(Destroy|\w+SetAttribute)",
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
        "",
        ("driver.c",),
        error=801,
        is_versioned=False,
        quiet=r"(?!)",
    ),
)


def build(environment: Path, folder: Path) -> list[Path]:
    """The stand-ins, in the order for LD_PRELOAD; raises BuildError."""
    packages = find_packages(environment)
    for program in ("gcc", "nm"):
        if shutil.which(program) is None:
            raise BuildError(f"{program} is missing: apt-get install gcc")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return [build_library(library, packages, folder) for library in LIBRARIES]


def build_nvml(source: Path, folder: Path) -> None:
    """The NVML of the tests beside the others; its functions are declared by itself."""
    target = folder / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", target, source], check=True)


def list_versions(environment: Path) -> dict[str, str]:
    """Of the packages that a rehearsal is about."""
    names = (one.name for one in find_packages(environment).glob("*.dist-info"))
    packages = (name.removesuffix(".dist-info").rpartition("-") for name in names)
    wanted = re.compile("torch|nvidia_(cublas|cudnn|nccl|cuda_runtime).*")
    return {name: version for name, _, version in sorted(packages) if wanted.fullmatch(name)}


def find_packages(environment: Path) -> Path:
    found = next(environment.glob("lib/python3.*/site-packages"), None)
    if found is None:
        raise BuildError(f"{environment} is no environment: dlperf-slurm env create --cuda pytorch")
    return found


def build_library(library: Library, packages: Path, folder: Path) -> Path:
    """One stand-in; raises BuildError where the wheel has another major version."""
    names = list_functions(library, packages)
    written = "".join((SOURCES / source).read_text("utf-8") for source in library.sources)
    others = [name for name in names if not re.search(rf"\b{name}\b\s*[(,]", written)]
    generated = folder / f"{library.name}.others.c"
    generated.write_text(write_others(library, others), encoding="utf-8")
    options = [*OPTIONS, f"-Wl,-soname,{library.name}", f"-I{SOURCES}"]
    options += [f"-I{packages / include}" for include in INCLUDES]
    if library.is_versioned:
        script = folder / f"{library.name}.map"
        script.write_text(f"{library.name} {{ global: *; }};\n", encoding="utf-8")
        options.append(f"-Wl,--version-script={script}")
    sources = [SOURCES / source for source in library.sources]
    target = folder / library.name
    done = subprocess.run(
        ["gcc", *options, "-o", target, *sources, generated, "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise BuildError(f"{library.name} cannot be built:\n{done.stderr[-2000:]}")
    return target


def list_functions(library: Library, packages: Path) -> list[str]:
    """What the real library exports; of the driver, what its header has: no wheel has it."""
    if library.name == DRIVER:
        header = (packages / DRIVER_HEADER).read_text("utf-8", errors="replace")
        names = set(re.findall(r"CUDAAPI\s+(cu\w+)\s*\(", header))
        # what the header renames: cuMemAlloc is cuMemAlloc_v2
        return sorted(names | set(re.findall(r"#define\s+cu\w+\s+(cu\w+_v\d\w*)", header)))
    path = packages / library.folder / library.name
    if not path.exists():
        stem = library.name.partition(".so.")[0]
        found = sorted(one.name for one in packages.glob(f"nvidia/*/lib/{stem}.so.*"))
        raise BuildError(
            f"the rehearsal knows {library.name}, and {packages} has {', '.join(found) or 'none'}"
        )
    done = subprocess.run(
        ["nm", "-D", "--defined-only", path], stdout=subprocess.PIPE, text=True, check=True
    )
    symbols = [line.split() for line in done.stdout.splitlines()]
    names = {words[-1].partition("@")[0] for words in symbols if words[-2] in "TWi"}
    return sorted(name for name in names if re.match("(__cuda|cuda|cublas|cudnn|nccl)", name))


def write_others(library: Library, names: list[str]) -> str:
    """C functions for what is not written by hand; they take whatever they are called with."""
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


if __name__ == "__main__":
    print(*build(Path(sys.argv[1]), Path(sys.argv[2])), sep="\n")
