# shellcheck shell=bash
# Packages: install from Debian what is missing.

PACKAGES=(
  slurmctld slurmd slurm-client munge
  slurmdbd slurm-wlm-mysql-plugin mariadb-server mariadb-client
  slurm-wlm-jwt-plugin # auth/jwt, for the tests of SLURM_JWT
  openmpi-bin
  libpmix-dev  # Slurm's PMIx plugin opens libpmix.so by that name, which only -dev has
  iproute2 util-linux
  gettext-base # envsubst
)

missing_packages() {
  local package status
  for package in "${PACKAGES[@]}"; do
    # shellcheck disable=SC2016 # ${...} is dpkg-query's
    status=$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2> /dev/null || true)
    [[ $status == installed ]] || echo "$package"
  done
}

install_packages() {
  local missing
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  ((EUID == 0)) || die "packages are missing; as root: apt-get install ${missing[*]}"
  mkdir -p "$TESTBED/log"
  say "installing ${missing[*]}"
  apt_install "${missing[@]}" > "$TESTBED/log/apt.log" 2>&1 || {
    tail -n 20 "$TESTBED/log/apt.log" >&2
    die "apt-get install failed, see $TESTBED/log/apt.log"
  }
}

apt_install() ( # PACKAGE...
  set -e
  # Keep the packages from starting daemons of their own (invoke-rc.d(8)).
  policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
  fi
  export DEBIAN_FRONTEND=noninteractive
  # One source out of reach does not matter if the others have the packages.
  apt-get -q -o DPkg::Lock::Timeout=600 update || true
  apt-get -q -o DPkg::Lock::Timeout=600 -y --no-install-recommends install "$@"
)
