#!/bin/bash
# Makes sure that what is needed is there: build (compiler, MPI, libraries), all (tests and lint too),
# demo (its text) or launchers (SLURM, sshd and Python packages for the launcher tests, which start them
# and end them again; no other target installs daemons). On Debian and Ubuntu missing packages are
# installed by apt, with sudo unless root; elsewhere they are listed and the script ends with 1. Versions
# are checked by CMake.
# usage: setup.sh [build|all|demo|launchers]
set -euo pipefail
what=${1:-build}

packages=()
need() { # need PACKAGE TEST...: PACKAGE is missing when TEST fails
  local package=$1
  shift
  "$@" > /dev/null 2>&1 || packages+=("$package")
}
program() { command -v "$1"; }
file() { compgen -G "$1"; }
header() { printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | "${CXX:-g++}" -E -x c++ -; }
parallel_hdf5() { file '/usr/include/hdf5/openmpi/hdf5.h' || program h5pcc || [ -n "${HDF5_ROOT:-}" ]; }
openblas() { file '/usr/lib/*/openblas-openmp/libopenblas.so' || { ! program apt-get && ldconfig -p | grep openblas; }; }
tidy() { clang-tidy --version | grep -qE 'version (1[5-9]|[2-9][0-9])' || program clang-tidy-15; }

if [ "$what" = demo ]; then
  need fortunes file '/usr/share/games/fortunes/wisdom'
  need fortunes-min file '/usr/share/games/fortunes/literature'
elif [ "$what" = launchers ]; then
  need slurm-wlm program slurmctld
  need munge program munged
  need openssh-server file '/usr/sbin/sshd'
  need openssh-client program ssh
  need iproute2 program ip
  need procps program pgrep
  need binutils program readelf
  need python3-venv file '/usr/lib/python3*/ensurepip'
else
  need g++ program "${CXX:-g++}"
  need make program make
  need cmake program cmake
  need ninja-build program ninja
  need git program git
  need python3 program python3
  need openmpi-bin program mpirun
  need libopenmpi-dev program mpicxx
  need libhdf5-openmpi-dev parallel_hdf5
  need libboost-program-options-dev header boost/program_options.hpp
  need libfmt-dev header fmt/format.h
  need nlohmann-json3-dev header nlohmann/json.hpp
  need libpcre2-dev header pcre2.h
  need libopenblas-openmp-dev openblas
  if program apt-get > /dev/null; then # optional: without them some inputs are refused by name
    need libicu-dev header unicode/normalizer2.h
    need libsentencepiece-dev header sentencepiece_processor.h
    need zlib1g-dev header zlib.h
    need libzstd-dev header zstd.h
  fi
fi
if [ "$what" = all ]; then
  need libgtest-dev header gtest/gtest.h
  need hdf5-tools program h5dump
  need strace program strace
  need clang-format program clang-format
  need clang-tidy-15 tidy
fi
[ ${#packages[@]} -eq 0 ] && exit 0

if ! command -v apt-get > /dev/null; then
  if [ "$what" = demo ]; then
    echo "The demo's text is in Debian's package fortunes; here, give your own: make run TEXT=file.txt" >&2
    exit 1
  fi
  cat >&2 << 'END'
Trireme needs: g++ 11.3 or clang 15, CMake 3.22, Ninja, git, python3, an MPI 3.1 (Open MPI 4.1 is what it is
tested with), parallel HDF5 1.10.7, Boost.Program_options 1.71, fmt, nlohmann-json 3.7, PCRE2 and OpenBLAS in its
OpenMP build, each or newer; for some tokenizers ICU, SentencePiece, zlib and zstd; for the tests also GoogleTest,
h5dump, strace, clang-format 14 and clang-tidy 15.
This machine has no apt, so nothing was installed. Not found, by the names of Debian's packages:
END
  printf '  %s\n' "${packages[@]}" >&2
  echo "Install them, or skip this check where they lie in unusual places: make ... SETUP=no" >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || {
    echo "These packages are missing, and neither root nor sudo is at hand. Ask for: apt-get install ${packages[*]}" >&2
    exit 1
  }
  sudo=(sudo)
fi
echo "installing: ${packages[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ "${sudo[@]}" apt-get update && "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y \
  --no-install-recommends "${packages[@]}"; } > "$log" 2>&1 ||
  { tail -20 "$log" >&2; echo "apt-get could not install: ${packages[*]}" >&2; exit 1; }
