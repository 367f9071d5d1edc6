#!/bin/bash
# Makes sure that everything the build needs is there. On Debian and Ubuntu missing packages are
# installed with apt (with sudo unless root); elsewhere they are listed and the script ends with 1.
set -euo pipefail

packages=()
need() { # need PACKAGE TEST...: PACKAGE is missing when TEST fails
  local package=$1
  shift
  "$@" > /dev/null 2>&1 || packages+=("$package")
}
has_header() { printf '#include <%s>\n' "$1" | "${CXX:-g++}" -std=c++20 -fsyntax-only -x c++ - ${2:+"$2"}; }
has_file() { compgen -G "$1"; }

need g++ command -v "${CXX:-g++}"
need make command -v make
need cmake command -v cmake
need ninja-build command -v ninja
need git command -v git
need python3 command -v python3
need clang-format command -v clang-format
need clang-tidy command -v clang-tidy
need openmpi-bin command -v mpirun
need libopenmpi-dev command -v mpicxx
need libhdf5-openmpi-dev has_file '/usr/include/hdf5/openmpi/hdf5.h'
need hdf5-tools command -v h5dump
need libboost-program-options-dev has_header boost/program_options.hpp
need libfmt-dev has_header fmt/format.h
need nlohmann-json3-dev has_header nlohmann/json.hpp
need libgtest-dev has_header gtest/gtest.h
need libopenblas-openmp-dev has_file '/usr/lib/*/openblas-openmp/libopenblas.so'
need strace command -v strace

[ ${#packages[@]} -eq 0 ] && exit 0
if ! command -v apt-get > /dev/null; then
  echo "Trireme needs, besides a C++20 compiler: Open MPI (or another MPI 3.1), parallel HDF5 1.10.7+," >&2
  echo "Boost.Program_options 1.71+, fmt, nlohmann-json, GoogleTest, OpenBLAS (its OpenMP build), CMake 3.22+," >&2
  echo "Ninja, git, python3, clang-format, clang-tidy, strace. By the names of Debian's packages, missing here:" >&2
  printf '  %s\n' "${packages[@]}" >&2
  echo "(Only Debian 12 has been run; Ubuntu 22.04 and newer have the same packages and were not run.)" >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || {
    echo "These packages are missing, and neither root nor sudo is at hand: ${packages[*]}" >&2
    exit 1
  }
  sudo=(sudo)
fi
echo "installing: ${packages[*]}"
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  "${packages[@]}" > /dev/null
