# shellcheck shell=bash
# shellcheck disable=SC2034 # the other files read what is set here
# Settings: what was asked for (options), what was chosen (ID), and what follows from both.

OPTIONS=(SLURM_ROOT NODES GPUS CPUS MEM_MB MODE PREEMPT MAX_ARRAY USERS PRIVATE_TMP CONSTRAIN_DEVICES
  ACCOUNTING CGROUP)
LIST_OPTIONS=(SHARES CONF_LINES)

set_default_options() {
  NODES=4 GPUS=8 CPUS=16 MODE=ns PREEMPT=qos MAX_ARRAY=1001 USERS='' PRIVATE_TMP=no
  # Per CPU 2000 MB, the default for a rank: enough for PyTorch. Slurm does not check it against
  # the machine (config_overrides).
  MEM_MB=32000
  CONSTRAIN_DEVICES=no ACCOUNTING=yes CGROUP=yes INSTALL=yes
  SHARES=() CONF_LINES=()
}

parse_options() {
  while (($#)); do
    case $1 in
      --private-tmp) PRIVATE_TMP=yes ;;
      --constrain-devices) CONSTRAIN_DEVICES=yes ;;
      --no-acct) ACCOUNTING=no ;;
      --no-cgroup) CGROUP=no ;;
      --no-install) INSTALL=no ;;
      --nodes | --gpus | --cpus | --mem | --mode | --preempt | --max-array | --users | --share | --conf)
        (($# > 1)) || die "$1 needs a value"
        set_option "$1" "$2"
        shift
        ;;
      *) die "unknown option '$1'; known: see cluster --help" ;;
    esac
    shift
  done
  [[ $MODE == ns ]] || ((NODES <= 50)) || die "--mode plain: at most 50 nodes, each needs a port"
}

set_option() { # OPTION VALUE
  case $1 in
    --nodes) NODES=$(number_between 1 200 "$@") ;;
    --gpus) GPUS=$(number_between 0 64 "$@") ;;
    --cpus) CPUS=$(number_between 1 1024 "$@") ;;
    --mem) MEM_MB=$(number_between 1 10000000 "$@") ;;
    --max-array) MAX_ARRAY=$(number_between 1 4000001 "$@") ;;
    --mode) MODE=$(one_of "ns plain" "$@") ;;
    --preempt) PREEMPT=$(one_of "qos partition none" "$@") ;;
    --users) USERS=$2 ;;
    --share) SHARES+=("$(realpath "$2")") ;;
    --conf)
      [[ $2 =~ ^[A-Za-z]+= ]] || die "--conf: '$2' is not Key=Value"
      CONF_LINES+=("$2")
      ;;
  esac
}

number_between() { # LOWEST HIGHEST OPTION VALUE
  [[ $4 =~ ^[0-9]{1,8}$ ]] || die "$3: '$4' is not a number"
  ((10#$4 >= $1 && 10#$4 <= $2)) || die "$3: $4 is not in $1 ... $2"
  echo $((10#$4))
}

one_of() { # "WORD..." OPTION VALUE
  [[ " $1 " == *" $3 "* ]] || die "$2: '$3' is not one of: $1"
  echo "$3"
}

print_options() {
  local name
  for name in "${OPTIONS[@]}"; do printf '%s=%q\n' "$name" "${!name}"; done
  for name in "${LIST_OPTIONS[@]}"; do
    local -n list=$name
    printf '%s=(%s)\n' "$name" "${list[*]@Q}"
  done
}

save_settings() { { echo "ID=$ID"; print_options; } > "$TESTBED/etc/settings"; }

load_settings() { # fails if there is no cluster
  [[ -f $TESTBED/etc/settings ]] || return 1
  set_default_options
  # shellcheck source=/dev/null
  source "$TESTBED/etc/settings"
  derive_settings
}

keep_settings() { # OPTION...: the settings of the running cluster, unless they were asked to be others
  local running asked
  load_settings
  running=$(print_options)
  (($# == 0)) || { set_default_options; parse_options "$@"; }
  asked=$(print_options)
  [[ $asked == "$running" ]] ||
    die "$TESTBED is up with other options, take it down first; running (<), asked (>):"$'\n'"$(
      diff <(echo "$running") <(echo "$asked"))"
}

check_testbed() {
  # It stands unquoted in slurm.conf, and a unix socket's path has 107 characters at most, of which
  # Slurm's own file names take half.
  [[ $TESTBED =~ ^/[A-Za-z0-9._/-]{1,49}$ ]] ||
    die "SLURM_TESTBED=$TESTBED: at most 50 characters of A-Z a-z 0-9 . _ - /"
  # We shall delete folders in it.
  [[ ! -e $TESTBED || -f $TESTBED/lock || -z $(ls -A "$TESTBED") ]] ||
    die "SLURM_TESTBED=$TESTBED is neither empty nor a cluster's folder"
}

claim_id() { # 0 ... 199, from the folder's name or the next free one; in mode ns it is ours at once
  local hash offset
  hash=$(cksum <<< "$TESTBED" | cut -d' ' -f1)
  for ((offset = 0; offset < 200; offset++)); do
    ID=$(((hash + offset) % 200))
    derive_settings
    if is_port_taken "$SLURMCTLD_PORT" || is_port_taken "$SLURMDBD_PORT"; then continue; fi
    [[ $MODE == ns ]] || return 0
    if has_link "$BRIDGE"; then continue; fi
    if ip link add "$BRIDGE" type bridge; then return 0; fi
    has_link "$BRIDGE" || die "--mode ns needs root, perhaps of a user namespace"
  done
  die "200 clusters are up"
}

is_port_taken() { (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null; } # PORT

derive_settings() {
  CLUSTER=tb$ID BRIDGE=slbr$ID SUBNET=10.77.$ID
  # Sixty ports a cluster, all below 32768, where the kernel's ephemeral ports begin.
  SLURMCTLD_PORT=$((20000 + ID * 60))
  SLURMDBD_PORT=$((SLURMCTLD_PORT + 1))
  SLURMD_PORT=$((SLURMCTLD_PORT + 10))
  if [[ $MODE == ns ]]; then HEAD_ADDRESS=$SUBNET.254; else HEAD_ADDRESS=127.0.0.1; fi
  # Slurm 22.05 on Debian has limits with cgroup v1 only; lib/node-init keeps clusters apart in it.
  MEMORY_LIMITS=no
  [[ $CGROUP == no || $MODE != ns || ! -w /sys/fs/cgroup/memory ]] || MEMORY_LIMITS=yes
  PLUGIN_DIR='' SLURMD=(slurmd -D)
  if [[ -n $SLURM_ROOT ]]; then
    PLUGIN_DIR=PluginDir=$(realpath "$SLURM_ROOT/plugins")
    SLURMD+=(-d "$SLURM_ROOT/bin/slurmstepd")
    [[ $PATH == "$SLURM_ROOT/bin:"* ]] || PATH=$SLURM_ROOT/bin:$PATH
  fi
  SLURM_VERSION=$(slurmctld -V 2> /dev/null | awk '{print $2}') || SLURM_VERSION=none
  # slurmdbd finds MariaDB's socket only through MYSQL_UNIX_PORT.
  export SLURM_CONF=$TESTBED/etc/slurm.conf MYSQL_UNIX_PORT=$TESTBED/run/mysql.sock
}
