"""Which symbols the library shows, and which its ISA-flagged objects define.

The linker keeps one copy of a weak symbol. Were an inline function of the standard library, or of a header shared between
instruction sets, defined in an object compiled for AVX-512, that copy could be the one that every CPU runs. So all that such
an object defines must lie in the namespace of its instruction set: `avx2`, or `<family>_avx2`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import fastconv

ROOT = Path(__file__).resolve().parents[2]
ISA_SOURCES = ROOT / "csrc" / "kernels" / "isa"
NM = shutil.which("nm")
CXX = shlex.split(os.environ.get("CXX", "")) or [path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))][:1]

needs_nm = pytest.mark.skipif(NM is None, reason="nm is not installed")


def symbols(*arguments: str | Path) -> list[tuple[str, str]]:
    """(type, demangled name) of what a file defines, as nm says it."""
    assert NM is not None
    text = subprocess.run([NM, "-C", "--defined-only", *map(str, arguments)], capture_output=True, text=True, check=True).stdout
    return [(kind, name) for kind, name in re.findall(r"^[0-9a-f]* +(\S) (.+)$", text, re.MULTILINE)]


def shared_between_isas(defined: list[tuple[str, str]], isa: str) -> list[str]:
    """Symbols another object may define too: visible to the linker, and not in the namespace of the instruction set."""
    own = re.compile(rf"\b(\w+_)?{isa}::")
    return [f"{kind} {name}" for kind, name in defined if (kind.isupper() or kind in "uvw") and not own.search(name)]


def isa_objects() -> list[tuple[Path, str]]:
    """(object, instruction set) of every build folder of this checkout, leftovers of deleted sources apart."""
    found = []
    for path in sorted(ROOT.glob("build/*/CMakeFiles/fastconv.dir/csrc/kernels/isa/*.o")):
        if (ISA_SOURCES / path.stem).exists():
            found.append((path, path.name.removesuffix(".cc.o").rpartition("_")[2]))
    return found


@needs_nm
def test_isa_objects_share_nothing() -> None:
    objects = isa_objects()
    if not objects:
        pytest.skip("no build folder in this checkout")
    offences = [f"{path.name}: {symbol}" for path, isa in objects for symbol in shared_between_isas(symbols(path), isa)]
    assert not offences, "\n".join(offences)


@needs_nm
@pytest.mark.skipif(not CXX, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("body", "fires"),
    [
        ("#include <vector>\nnamespace avx2 { void f(std::vector<int>& v) { v.push_back(1); } }", True),
        ("inline int twice(int x) { return 2 * x; }\nnamespace avx2 { int (*pick())(int) { return twice; } }", True),
        ("void visible() {}", True),
        ("namespace row_avx2 { template <int n> int f() { return n; } int g() { return f<3>(); } }", False),
        ("namespace row_avx512 { void f() {} }", True),
        ("namespace { int hidden() { return 1; } }\nnamespace avx2 { int g() { return hidden(); } }", False),
    ],
)
def test_the_isa_guard_fires(body: str, fires: bool, tmp_path: Path) -> None:
    source = tmp_path / "probe_avx2.cc"
    source.write_text(body)
    subprocess.run([*CXX, "-std=c++17", "-O0", "-c", source.name, "-o", "probe.o"], cwd=tmp_path, check=True)
    assert bool(shared_between_isas(symbols(tmp_path / "probe.o"), "avx2")) == fires


@needs_nm
def test_the_library_shows_its_interface_only() -> None:
    library = Path(fastconv.__path__[0]) / "libfastconv.so"
    declared = set(re.findall(r"^FASTCONV_EXPORT .*?\b(fastconv_\w+)\(", (ROOT / "csrc" / "fastconv.h").read_text(), re.MULTILINE))
    shown = {name for _, name in symbols("-D", library)} if os.uname().sysname == "Linux" else declared
    assert len(declared) > 5
    assert shown - {"fastconv_conv_v1", "fastconv_counted_v1"} == declared
