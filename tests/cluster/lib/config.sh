# shellcheck shell=bash
# Configuration: the templates of conf/ filled in, into etc/; and the folders and devices they name.

render() ( # TEMPLATE: conf/TEMPLATE with each ${NAME} replaced by that shell variable
  for name in $(envsubst --variables "$(< "$HERE/conf/$1")"); do
    [[ -v $name ]] || die "conf/$1: \${$name} is not set"
    export "${name?}"
  done
  envsubst < "$HERE/conf/$1"
)

clear_state() { # a cluster that starts anew knows no jobs; its database does, see first_job_id
  rm -rf "$TESTBED"/{run,spool,state,nodes}
  mkdir -p "$TESTBED"/{run,state,spool,db,dev,pmix}
}

write_config() {
  local etc=$TESTBED/etc
  if [[ ! -s $etc/munge.key ]]; then
    (umask 077 && head -c 1024 /dev/urandom > "$etc/munge.key")
  fi
  write_slurm_conf
  write_gres_conf > "$etc/gres.conf"
  write_cgroup_conf > "$etc/cgroup.conf"
  # PMIx's folder has no node in its name, so the nodes must not share it: lib/node-init sees to that.
  echo "PMIxCliTmpDirBase=$TESTBED/pmix" > "$etc/mpi.conf"
  write_name_service
  if [[ $ACCOUNTING == yes ]]; then write_accounting_config; fi
}

# shellcheck disable=SC2034 # render reads the variables
write_slurm_conf() (
  conf=$TESTBED/etc/slurm.conf
  OWNER=$(id -un)
  MEM_PER_CPU_MB=$((MEM_MB / CPUS))
  FIRST_JOB_ID=$(first_job_id)
  NODE_GRES=
  ((GPUS == 0)) || NODE_GRES=Gres=gpu:$GPUS
  TASK_PLUGIN=task/none
  [[ $MEMORY_LIMITS == no ]] || TASK_PLUGIN=task/cgroup
  if [[ $MODE == ns ]]; then
    # slurmctld refuses to run on a host of another name than this
    SLURMCTLD_HOST="head($HEAD_ADDRESS)"
    NODE_HOSTNAMES="n[1-$NODES]" NODE_ADDRESSES="$SUBNET.[1-$NODES]" NODE_PORTS=$SLURMD_PORT
  else
    SLURMCTLD_HOST=localhost
    NODE_HOSTNAMES=localhost NODE_ADDRESSES=127.0.0.1
    NODE_PORTS="[$SLURMD_PORT-$((SLURMD_PORT + NODES - 1))]"
  fi
  PREEMPT_MODE=REQUEUE HIGH_PREEMPT_MODE=REQUEUE
  case $PREEMPT in
    qos) PREEMPT_TYPE=preempt/qos ;;
    partition) PREEMPT_TYPE=preempt/partition_prio HIGH_PREEMPT_MODE=OFF ;;
    none) PREEMPT_TYPE=preempt/none PREEMPT_MODE=OFF HIGH_PREEMPT_MODE=OFF ;;
  esac
  render slurm.conf > "$conf"
  if [[ $ACCOUNTING == yes ]]; then render accounting.conf; else render no-accounting.conf; fi >> "$conf"
  for line in "${CONF_LINES[@]}"; do
    case $line in
      NodeName=* | PartitionName=*) ;; # one more
      *) sed -i "/^${line%%=*}=/Id" "$conf" ;;
    esac
    echo "$line" >> "$conf"
  done
)

first_job_id() { # each up gets ids of its own: sacct would show a former job of the same id
  local file=$TESTBED/etc/generation generation=0
  [[ ! -f $file ]] || generation=$(< "$file")
  echo $((generation + 1)) > "$file"
  echo $((generation * 20000 + 1))
}

write_gres_conf() {
  local devices
  echo "AutoDetect=off"
  ((GPUS > 0)) || return 0
  devices=$(make_gpu_devices)
  # The flag: CUDA_VISIBLE_DEVICES only, not also the variables of other vendors.
  echo "NodeName=n[1-$NODES] Name=gpu File=${devices}[0-$((GPUS - 1))] Flags=nvidia_gpu_env"
}

make_gpu_devices() { # prints their common prefix
  # gres/gpu counts and hands out only what is a device file: with plain files no job gets
  # CUDA_VISIBLE_DEVICES, and Count= without File= leaves the node with 0 GPUS. None is ever opened.
  local device i
  for ((i = 0; i < GPUS; i++)); do
    device=$TESTBED/dev/nvidia$i
    [[ ! -c $device ]] || continue
    rm -f "$device"
    # 240: the first major number that the kernel keeps for local use (its devices.txt)
    mknod -m 666 "$device" c 240 "$i" 2> /dev/null && continue
    # Root of a user namespace may not make devices, but may mount one.
    : > "$device"
    mount --bind /dev/null "$device" 2> /dev/null && continue
    echo /dev/tty # without any rights: 64 devices that every machine has
    return
  done
  echo "$TESTBED/dev/nvidia"
}

remove_gpu_devices() {
  local device
  for device in "$TESTBED"/dev/nvidia*; do
    if mountpoint -q "$device"; then umount "$device"; fi
  done
}

write_cgroup_conf() {
  if [[ $MEMORY_LIMITS == yes ]]; then
    render cgroup.conf
  elif printf '22.11\n%s\n' "$SLURM_VERSION" | sort -VC; then
    # Since then slurmd sets up a cgroup for itself unless told not to; before, it does not know this.
    echo "CgroupPlugin=disabled"
  fi
}

write_name_service() { # what the nodes of mode ns see as /etc/hosts and /etc/nsswitch.conf
  local etc=$TESTBED/etc i
  {
    echo "127.0.0.1 localhost"
    echo "::1 localhost ip6-localhost"
    for ((i = 1; i <= NODES; i++)); do echo "$SUBNET.$i n$i"; done
    echo "$HEAD_ADDRESS head $(uname -n)"
  } > "$etc/hosts"
  # Names come from that file only: each query to a DNS server out of the node's reach costs 10 s.
  {
    grep -v '^hosts:' /etc/nsswitch.conf || true
    echo "hosts: files"
  } > "$etc/nsswitch.conf"
}

# shellcheck disable=SC2034 # render reads the variables
write_accounting_config() (
  etc=$TESTBED/etc
  OWNER=$(id -un)
  ALL_USERS=$OWNER${USERS:+,$USERS}
  render my.cnf > "$etc/my.cnf"
  (umask 077 && render slurmdbd.conf > "$etc/slurmdbd.conf") # slurmdbd refuses it otherwise
  render accounts.sacctmgr > "$etc/accounts.sacctmgr"
  render users.sacctmgr > "$etc/users.sacctmgr"
  # A database made for another version, name or set of accounts: start anew.
  if [[ $(accounts_checksum) != "$(cat "$etc/accounts.done" 2> /dev/null)" ]]; then
    rm -rf "$TESTBED/db" "$etc/accounts.done"
    mkdir "$TESTBED/db"
  fi
)

accounts_checksum() { cat "$TESTBED"/etc/{accounts,users}.sacctmgr | cksum; }
