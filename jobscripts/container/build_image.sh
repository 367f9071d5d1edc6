#!/bin/bash
# The steps of the Dockerfile, so that they run and are tested without a container engine, too.
#   build_image.sh packages build|run     installs Debian packages (root)
#   build_image.sh program SOURCE PREFIX [cpu|cuda]   builds and installs below PREFIX
#   build_image.sh setup ROOT             user mpiuser (uid 1000), ssh client settings; ROOT is / or a folder
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# One Open MPI for launcher and workers; sshd for the ranks' start, no more.
run_packages=(openmpi-bin libhdf5-openmpi-103-1 libboost-program-options1.74.0 libfmt9 libpcre2-8-0 libopenblas0-openmp
  libsentencepiece0 libicu72 zlib1g libzstd1 openssh-server openssh-client)
build_packages=(g++ make cmake ninja-build git python3 openmpi-bin libopenmpi-dev libhdf5-openmpi-dev libboost-program-options-dev
  libfmt-dev nlohmann-json3-dev libpcre2-dev libopenblas-openmp-dev libicu-dev libsentencepiece-dev zlib1g-dev libzstd-dev)

case ${1:-} in
  list)
    declare -n names=${2:?build or run}_packages
    printf '%s\n' "${names[@]}"
    ;;
  packages)
    declare -n names=${2:?build or run}_packages
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${names[@]}"
    rm -rf /var/lib/apt/lists/*
    ;;
  program)
    source=${2:?source folder} prefix=${3:?prefix} backend=${4:-cpu}
    work=${TRIREME_IMAGE_BUILD:-/tmp/trireme-build}
    # Not for this machine's processor alone; AVX2 is what every cluster of the last ten years has.
    cmake -S "$source" -B "$work" -G Ninja -DTRIREME_BACKEND="$backend" -DTRIREME_TESTS=OFF -DTRIREME_NATIVE=OFF \
      -DCMAKE_CXX_FLAGS=-march=x86-64-v3 -DCMAKE_INSTALL_PREFIX="$prefix" ${TRIREME_CMAKE_ARGS:-}
    cmake --build "$work"
    mkdir -p "$prefix/bin"
    for program in trireme trireme-cpu; do
      [ ! -e "$work/bin/$program" ] || install -s "$work/bin/$program" "$prefix/bin/"
    done
    cp -r "$source/inputs" "$source/jobscripts" "$prefix/"
    cp "$source/LICENSE" "$prefix/"
    ;;
  setup)
    root=${2:?root folder}
    root=${root%/}
    mkdir -p "$root"/etc/ssh/ssh_config.d "$root"/home/mpiuser "$root"/runs
    grep -q '^mpiuser:' "$root/etc/passwd" || echo 'mpiuser:x:1000:1000:ranks:/home/mpiuser:/bin/bash' >> "$root/etc/passwd"
    grep -q '^mpiuser:' "$root/etc/group" || echo 'mpiuser:x:1000:' >> "$root/etc/group"
    mkdir -p "$root/home/mpiuser/.ssh"
    chmod 700 "$root/home/mpiuser/.ssh"
    chown -R 1000:1000 "$root/home/mpiuser" "$root/runs"
    cp "$here/ssh_config" "$root/etc/ssh/ssh_config.d/trireme.conf"
    rm -f "$root"/etc/ssh/ssh_host_* # each job brings its own key
    ;;
  *)
    echo "usage: build_image.sh packages build|run; program SOURCE PREFIX [cpu|cuda]; setup ROOT; list build|run" >&2
    exit 64
    ;;
esac
