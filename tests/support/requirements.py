"""What a test lane requires of a machine, and how to get it if it is missing."""

import os
import shutil
import subprocess


def find_missing_slurm() -> str:
    """Return why no Slurm cluster can be started here, and what to do, or ''."""
    if os.geteuid() != 0:
        return (
            "needs root, as its nodes are network namespaces: as root, or in a container with "
            "CAP_SYS_ADMIN and CAP_NET_ADMIN: make test-slurm"
        )
    if shutil.which("slurmctld") is None and shutil.which("apt-get") is None:
        return (
            "needs Debian's packages: use Debian 12, or install slurmctld, slurmd, slurmdbd, "
            "munge and MariaDB"
        )
    return ""


def find_missing_browser() -> str:
    """Return why no Chromium can be started or installed here, and what to do, or ''."""
    if find_chromium() or (os.geteuid() == 0 and shutil.which("apt-get")):
        return ""
    return "needs a chromium: apt-get install chromium, or another one, named in CHROMIUM"


def find_chromium() -> str:
    """Return the program that CHROMIUM names, or the chromium on PATH, or ''."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or ""


def find_missing_latex() -> str:
    """Return why no LaTeX document can be compiled here, and what to do, or ''."""
    if (
        shutil.which("pdflatex")
        and shutil.which("kpsewhich")
        and not subprocess.run(
            ["kpsewhich", "siunitx.sty", "booktabs.sty"], capture_output=True, check=False
        ).returncode
    ):
        return ""
    return (
        "needs pdflatex with siunitx and booktabs: apt-get install texlive-latex-recommended "
        "texlive-science"
    )
