"""Names what this machine's processor can do: executables for the cpu may use all of it."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path


def host_fingerprint() -> str:
    """Names the machine's instructions: its architecture and a hash of the flags, as in `x86_64-1f2e3d4c5b6a`."""
    return f"{platform.machine()}-{hashlib.sha256(_cpu_flags().encode()).hexdigest()[:12]}"


def _cpu_flags() -> str:
    # Linux lists them as `flags` on x86 and as `Features` on Arm.
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return " ".join(sorted(value.split()))
    return platform.processor()
