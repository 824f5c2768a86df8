# shellcheck shell=bash
# Nodes: a bridge, and on it machines made of Linux namespaces (mode ns), or slurmd alone (mode plain).

for_each_node() { # COMMAND: called with n1, n2, ...
  local i
  for ((i = 1; i <= NODES; i++)); do "$1" "n$i"; done
}

raise_bridge() { # 10.77.ID.0/24, this host being .254
  [[ $MODE == ns ]] || return 0
  ip link set lo up # in a user namespace of one's own it is down
  has_link "$BRIDGE" || ip link add "$BRIDGE" type bridge
  ip address replace "$HEAD_ADDRESS/24" dev "$BRIDGE"
  ip link set "$BRIDGE" up
}

remove_bridge() {
  if [[ $MODE == ns ]]; then delete_link "$BRIDGE"; fi
}

delete_link() { # INTERFACE: may vanish meanwhile by itself, as a cable does with the node at its end
  ip link delete dev "$1" 2> /dev/null || true
  if has_link "$1"; then say "$1 cannot be deleted"; fi
}

# Not by /sys/class/net, which in a network namespace may still be the host's.
has_link() { ip link show dev "$1" &> /dev/null; } # INTERFACE

start_node() { # nX
  [[ $MODE == plain ]] || is_alive "node-$1" || boot_node "$1"
  is_alive "slurmd-$1" || start_slurmd "$1"
}

boot_node() { # nX: its namespaces, its first process (lib/node-init) and its network cable
  local node=$1 number=${1#n} cgroup=''
  [[ $MEMORY_LIMITS == no ]] || cgroup=$CLUSTER
  rm -f "$TESTBED/run/$node.ready"
  # --ipc: MPI libraries that find the same System V memory everywhere believe in one machine.
  start_process "node-$node" \
    unshare --net --uts --ipc --mount --pid --fork --kill-child \
    "$HERE/lib/node-init" "$node" "$TESTBED" "$SUBNET.$number" "$HEAD_ADDRESS" \
    "$cgroup" "$PRIVATE_TMP" "${SHARES[@]}"
  adopt_child "node-$node"
  ip link add "sl$ID-$number" type veth peer name eth0 netns "$(process_id "node-$node")"
  ip link set "sl$ID-$number" master "$BRIDGE" up
  await_process "node-$node" 10 test -e "$TESTBED/run/$node.ready"
}

enter_node() { # nX COMMAND...: replaces this shell
  local init
  [[ $MODE == ns ]] || die "mode $MODE has no machines to enter"
  init=$(process_id "node-$1") || die "$1 is not up"
  shift
  exec nsenter --target "$init" --net --uts --ipc --mount --root --pid -- "$@"
}

start_slurmd() { # nX
  rm -f "$TESTBED/run/slurmd-$1.self"
  if [[ $MODE == plain ]]; then
    start_process "slurmd-$1" "${SLURMD[@]}" -N "$1"
  else
    start_process "slurmd-$1" nsenter --target "$(process_id "node-$1")" \
      --net --uts --ipc --mount --root --pid -- "${SLURMD[@]}" -N "$1"
    adopt_child "slurmd-$1" # nsenter stays, as the parent of what it starts in a pid namespace
  fi
}

stop_slurmd() { stop_process "slurmd-$1" KILL 5; } # nX

await_node() { await_process "slurmd-$1" 30 is_node_usable "$1"; } # nX

is_node_usable() { # nX: also true while it is drained or busy
  local state
  # slurmd writes this file once it listens; slurmctld alone would not do, as it may have missed
  # that the node was away.
  [[ -s $TESTBED/run/slurmd-$1.self ]] || return 1
  state=$(timeout 10 sinfo --noheader --partition=main --nodes="$1" --format=%T)
  # sinfo(1): a * follows the state of a node that does not respond
  [[ -n $state && ! $state =~ down|unknown|inval|'*' ]]
}

crash_node() { # nX
  [[ $MODE == ns ]] || die "mode $MODE has no machines to crash"
  stop_node "$1"
}

stop_node() { # nX
  stop_slurmd "$1"
  [[ $MODE == ns ]] || return 0
  # The death of a pid namespace's first process is that of all others; it ends as the last.
  stop_process "node-$1" KILL 10
  delete_link "sl$ID-${1#n}"
  remove_cgroups "$1"
}

remove_cgroups() { # nX: slurmd removes only those of the jobs it saw ending
  local controller group
  for controller in memory devices; do
    group=/sys/fs/cgroup/$controller/$CLUSTER/$1
    [[ -d $group ]] || continue
    find "$group" -depth -type d -exec rmdir {} + || say "$group is still in use"
    rmdir --ignore-fail-on-non-empty "${group%/*}"
  done
}

cancel_jobs() { # mode plain: nothing but Slurm itself knows the processes of the jobs
  is_alive slurmctld || return 0
  local state
  for state in PENDING RUNNING SUSPENDED; do scancel --state="$state" || true; done
  wait_until 15 has_no_jobs || say "jobs that do not end: $(squeue --noheader --format=%i | xargs)"
}

has_no_jobs() { local jobs; jobs=$(squeue --noheader) && [[ -z $jobs ]]; }
