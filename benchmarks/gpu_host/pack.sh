#!/usr/bin/env bash
# Packs what op_profiler needs on a GPU host that has no network: TVM with CUDA, and Python packages; today's TVM with
# Relax in a second archive, relax-tvm.tar.xz, which may be left out.
# usage: pack.sh OUT_DIR [REQUIREMENT ...]
#   Runs on x86-64 Linux that reaches PyPI and has cc, strip, unzip, xz. REQUIREMENT: further packages for CPython 3.12,
#   each without what it depends on. Packages that GPU hosts with torch and transformers have are not packed.
#   See docs/tutorials/gpu.md.
set -euo pipefail
shopt -s globstar nullglob
[ $# -ge 1 ] || { sed -n '2,7p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
for tool in cc strip unzip xz python3; do
  command -v "$tool" >/dev/null || { echo "pack.sh needs $tool" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
site=$work/site
mkdir -p "$work/wheels" "$site"

wheel() { # FOLDER REQUIREMENT...: wheels for the GPU host's Python
  local folder=$1
  shift
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d "$folder" "$@"
}
for requirement in SQLAlchemy xgboost-cpu tornado decorator msgspec platformdirs setuptools 'pygambit>=17.0.0b2' \
                   nvidia-cuda-runtime-cu12==12.1.105 "$@"; do
  wheel "$work/wheels" "$requirement"
done
for file in "$work"/wheels/*.whl; do
  unzip -q -o "$file" -d "$site"
done
# TVM 0.17.dev0 with USE_CUDA=ON and LLVM ships inside the wheel of bitblas. Of bitblas itself only the name is kept:
# op_profiler looks for the build beside the module of that name, and reads the version.
grep -A1 '^bitblas==' "$here/../../requirements/cuda.txt" > "$work/bitblas.txt"
python3 -m pip download -q --no-deps --require-hashes -d "$work" -r "$work/bitblas.txt"
unzip -q "$work"/bitblas-*.whl 'bitblas/3rdparty/tvm/python/*' 'bitblas/3rdparty/tvm/build/libtvm.so' \
  'bitblas/3rdparty/tvm/LICENSE' 'bitblas-*.dist-info/METADATA' -d "$site"
: > "$site/bitblas/__init__.py"

# libtvm.so is linked against NVRTC of CUDA 12, and never calls it while its Python has nvcc compile. In its place: a
# library of that name and version which hands every call to the NVRTC of CUDA 13, where the host has one.
mkdir -p "$site/nvidia/cuda_nvrtc/lib"
python3 - "$work" <<'PY'
import pathlib, sys

names = """nvrtcCreateProgram nvrtcCompileProgram nvrtcDestroyProgram nvrtcGetPTXSize nvrtcGetPTX nvrtcGetCUBINSize
    nvrtcGetCUBIN nvrtcGetProgramLogSize nvrtcGetProgramLog nvrtcAddNameExpression nvrtcGetLoweredName nvrtcVersion
    nvrtcGetNumSupportedArchs nvrtcGetSupportedArchs nvrtcGetErrorString""".split()
head = """#include <dlfcn.h>
#include <stdlib.h>
typedef long (*call)(long, long, long, long, long, long);
static call find(const char *name) {
  static void *library;
  const char *path = getenv("NVRTC_LIBRARY");
  if (!library && path) library = dlopen(path, RTLD_NOW);
  if (!library) library = dlopen("libnvrtc.so.13", RTLD_NOW);
  return library ? (call)dlsym(library, name) : 0;
}
"""
body = "long {0}(long a, long b, long c, long d, long e, long f) {{\n  static call to;\n" \
    "  if (!to) to = find(\"{0}\");\n  return to ? to(a, b, c, d, e, f) : {1};\n}}\n"
failed = {"nvrtcGetErrorString": '(long)"this host has no libnvrtc.so.13 (NVRTC_LIBRARY names another)"'}
folder = pathlib.Path(sys.argv[1])
(folder / "nvrtc.c").write_text(head + "".join(body.format(name, failed.get(name, "11")) for name in names))
(folder / "nvrtc.map").write_text("libnvrtc.so.12 { global: nvrtc*; local: *; };\n")
PY
cc -shared -fPIC -O2 -Wl,-soname,libnvrtc.so.12 -Wl,--version-script="$work/nvrtc.map" \
  -o "$site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12" "$work/nvrtc.c" -ldl

# The host has packages of its own under nvidia/; a plain __init__.py there would hide one or the other.
find "$site/nvidia" -name __init__.py -delete
echo '__path__ = __import__("pkgutil").extend_path(__path__, __name__)' > "$site/nvidia/__init__.py"
for package in cuda_runtime cuda_nvrtc; do
  : > "$site/nvidia/$package/__init__.py"
  find "$site/nvidia/$package" -type f ! -name '*.so.12' ! -name __init__.py -delete
done
# benchmarks/common.py asks for the version of the TVM that op_profiler installs elsewhere; here it is this one.
mkdir -p "$site/xtc_tvm_python_bindings-0.17.dev0.dist-info"
printf 'Metadata-Version: 2.1\nName: xtc-tvm-python-bindings\nVersion: 0.17.dev0\n' \
  > "$site/xtc_tvm_python_bindings-0.17.dev0.dist-info/METADATA"

# Today's TVM, with Relax, has the same module name: a folder of its own. The host's nvcc compiles for it.
relax=$work/relax-tvm
mkdir -p "$work/relax-wheels" "$relax"
wheel "$work/relax-wheels" --require-hashes -r "$here/../../requirements/relax.txt"
wheel "$work/relax-wheels" ml_dtypes nvidia-cuda-runtime==13.5.37
for file in "$work"/relax-wheels/*.whl; do
  unzip -q -o "$file" -d "$relax"
done
rm -rf "$relax"/nvidia/cu13/include "$relax"/tvm/include "$relax"/tvm/src "$relax"/tvm/3rdparty

rm -rf "$site"/**/__pycache__ "$site"/**/tests "$site"/tornado/test "$site"/xgboost/spark "$site"/xgboost/dask \
  "$site"/sqlalchemy/testing
find "$site" -type f \( -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.pyi' -o -name '*.h' \
  -o -name 'gambit.cpp' \) -delete
find "$site" -type d -empty -delete
find "$site" "$relax" -type f \( -name '*.so' -o -name '*.so.*' \) -exec strip {} +

for folder in site relax-tvm; do
  tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cf "$work/$folder.tar" "$folder"
  xz -T1 --x86 --lzma2=preset=9e,dict=192MiB,nice=273,pb=0,lc=4 -c "$work/$folder.tar" > "$out/$folder.tar.xz"
done
rm -rf "$out/wheels" "$out/libtvm.so.xz" "$out/tvm-python.tar.xz"
for script in unpack.sh run.sh; do
  [ "$here" = "$out" ] || cp "$here/$script" "$out/$script"
done
for file in "$work"/wheels/*.whl "$work"/relax-wheels/*.whl bitblas-0.1.0.post1.whl; do
  basename "$file" .whl
done > "$out/contents.txt"
du -b --apparent-size "$out"/* | awk '{ sum += $1; print } END { printf "%.1f MB in all\n", sum / 1e6 }'
