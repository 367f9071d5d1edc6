#!/bin/bash
# Proves that the project sets itself up on a bare machine: makes a minimal Debian 12 in FOLDER, clones
# this repository's last commit into it, and runs make there. Nothing is pre-installed but make and git,
# the documented prerequisites. Needs root and debootstrap; mirror and proxy are those of this machine.
# All mounts and processes live in namespaces of their own and go with the script; FOLDER is removed at
# the end unless KEEP=1.
# usage: [KEEP=1] tools/fresh_machine.sh FOLDER [make arguments: run, test, run ARGS=--run.steps=40 ...]
set -euo pipefail
suite=bookworm
repository=$(cd "$(dirname "$0")/.." && pwd)

die() { echo "fresh_machine: $*" >&2; exit 1; }

# The part that runs in the namespaces: mounts, then make inside.
inside() {
  local root=$1
  shift
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  local variables=() name
  for name in http_proxy https_proxy no_proxy; do
    [ -z "${!name:-}" ] || variables+=("$name=${!name}")
  done
  local enter=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "${variables[@]}" chroot "$root")
  "${enter[@]}" sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends make git > /dev/null'
  echo "== packages before: $("${enter[@]}" sh -c 'dpkg -l | grep -c ^ii')"
  "${enter[@]}" make -C /trireme "$@"
  echo "== packages after:  $("${enter[@]}" sh -c 'dpkg -l | grep -c ^ii')"
}

if [ "${1:-}" = --inside ]; then
  shift
  inside "$@"
  exit
fi

[ $# -ge 1 ] || die "a folder is missing; usage: tools/fresh_machine.sh FOLDER [make arguments]"
[ "$(id -u)" -eq 0 ] || die "only root can make and enter a chroot"
command -v debootstrap > /dev/null || die "debootstrap is missing: apt-get install debootstrap"
root=$1
shift
[ $# -gt 0 ] || set -- run
[ ! -e "$root" ] || die "$root exists: name a folder that does not"

# "SITE SUITE COMPONENT" of this machine's own Debian sources.
sources=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
  sed -n "s/^Debian \(.* $suite.* main\)$/\1/p" | sort -u)
mirror=$(awk -v suite=$suite '$2 == suite { print $1; exit }' <<< "$sources")
[ -n "$mirror" ] || die "no source of Debian $suite in this machine's apt configuration"

cleanup() {
  status=$?
  [ "${KEEP:-}" = 1 ] || rm -rf --one-file-system "$root"
  exit $status
}
trap cleanup EXIT
started=$SECONDS
echo "== a minimal Debian $suite in $root, from $mirror"
debootstrap --variant=minbase "$suite" "$root" "$mirror" > "$root.log" 2>&1 || { tail -5 "$root.log" >&2; die "debootstrap failed"; }
rm -f "$root.log"
sed 's/^/deb /' <<< "$sources" > "$root/etc/apt/sources.list"
apt-config dump | grep '^Acquire::' > "$root/etc/apt/apt.conf.d/90host" || true
cp /etc/resolv.conf "$root/etc/resolv.conf"
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" > "$root/etc/hosts" # as Debian's installer does
git clone -q "$repository" "$root/trireme"
echo "== ready after $((SECONDS - started)) s; commit $(git -C "$root/trireme" log -1 --format=%h); make $*"
unshare --mount --pid --fork --kill-child --propagation private "$0" --inside "$root" "$@"
echo "== passed: make $* on a bare machine, $((SECONDS - started)) s in all"
