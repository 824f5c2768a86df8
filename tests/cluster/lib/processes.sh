# shellcheck shell=bash
# Processes: start, find, await and stop the cluster's own, and no others.
#
# A process is known by the file run/NAME.pid, which holds "pid start_time": the kernel uses pids
# again, and a stranger that has got the number of a dead daemon must not be killed.

process_start_time() { # PID: clock ticks since boot (field 22 of /proc/PID/stat, see proc(5))
  local stat fields
  stat=$(cat "/proc/$1/stat" 2> /dev/null) || return 1
  # The program's name, field 2, may hold blanks and parentheses: begin after the last ")".
  read -ra fields <<< "${stat##*) }"
  # A dead process stays a zombie until its parent takes note, where init is slow for seconds.
  [[ ${fields[0]} != Z ]] || return 1
  echo "${fields[19]}"
}

record_process() { # NAME PID
  local start_time
  start_time=$(process_start_time "$2") || return 1
  echo "$2 $start_time" > "$TESTBED/run/$1.pid"
}

process_id() { # NAME: its pid; fails unless it is alive
  local pid start_time
  [[ -f $TESTBED/run/$1.pid ]] || return 1
  read -r pid start_time < "$TESTBED/run/$1.pid" || return 1
  [[ $(process_start_time "$pid") == "$start_time" ]] || return 1
  echo "$pid"
}

is_alive() { process_id "$1" > /dev/null; } # NAME

is_dead() { ! is_alive "$1"; } # NAME

start_process() { # NAME COMMAND...: detached, its output in log/NAME.out
  local name=$1
  shift
  # Without its copy of the lock the daemon would hold the lock for as long as it lives.
  (cd "$TESTBED/log" && exec setsid "$@") >> "$TESTBED/log/$name.out" 2>&1 < /dev/null {LOCK}>&- &
  record_process "$name" $! || die "$name did not start, see $TESTBED/log/$name.out"
}

first_child() { # PID: the pid of its oldest child; fails while there is none
  local children
  children=$(cat "/proc/$1/task/$1/children") && [[ -n $children ]] || return 1
  echo "${children%% *}"
}

adopt_child() { # NAME: from now on this name means the child of the process it meant so far
  local parent
  parent=$(process_id "$1") || die "$1 did not start, see $TESTBED/log/$1.out"
  wait_until 5 first_child "$parent" || die "$1 did not start, see $TESTBED/log/$1.out"
  record_process "$1" "$(first_child "$parent")" || die "$1 ended at once, see $TESTBED/log/$1.out"
}

wait_until() { # SECONDS COMMAND...: until the command succeeds
  local deadline=$((SECONDS + $1))
  shift
  until "$@" &> /dev/null; do
    ((SECONDS <= deadline)) || return 1
    sleep 0.05
  done
}

await_process() { # NAME SECONDS COMMAND...: until the command succeeds; dies as soon as NAME has
  local name=$1 deadline=$((SECONDS + $2))
  shift 2
  until "$@" &> /dev/null; do
    if ((SECONDS > deadline)) || is_dead "$name"; then
      tail -n 20 "$TESTBED/log/$name".* >&2 || true
      die "$name did not become ready"
    fi
    sleep 0.05
  done
}

stop_process() { # NAME SIGNAL SECONDS: KILL when the signal has not ended it after that time
  local pid
  if pid=$(process_id "$1"); then
    kill -"$2" "$pid" 2> /dev/null || true
    if ! wait_until "$3" is_dead "$1"; then
      say "$1 (pid $pid) ignored $2: KILL"
      kill -KILL "$pid" 2> /dev/null || true
      wait_until 5 is_dead "$1" || say "$1 (pid $pid) cannot be killed"
    fi
  fi
  rm -f "$TESTBED/run/$1.pid"
}

list_processes() { # name, pid and memory; shared pages count by the share (Pss in proc(5))
  local file name pid
  for file in "$TESTBED"/run/*.pid; do
    [[ -f $file ]] || continue
    name=$(basename "$file" .pid)
    if pid=$(process_id "$name"); then
      printf '%-12s %7s %7s KiB\n' "$name" "$pid" \
        "$(awk '/^Pss:/ {print $2}' "/proc/$pid/smaps_rollup" 2> /dev/null)"
    else
      printf '%-12s    dead\n' "$name"
    fi
  done
}

lock_testbed() { # two commands at once on one cluster: the second waits for the first
  exec {LOCK}> "$TESTBED/lock"
  flock "$LOCK"
}

say_elapsed() { say "$(printf '%3d s  %s' "$SECONDS" "$*")"; }
