# shellcheck shell=bash
# Functions that every job script of a run calls around its launch command.
#
# `submit` copies this file to scripts/harness.sh of a new run. It is not replaced afterwards: scripts
# of later attempts source the same copy, so the names below change only with the schema version.
#
# A job script sets run_dir and group_id, sources this file, defines these functions, and calls
# run_array_tasks:
#   prepare_task                   runs the site's setup, modules and environment
#   activate_FRAMEWORK             sets up the framework's environment, in a subshell
#   launch_FRAMEWORK               starts the ranks; also search_, script_, script_ranks_, profile_TOOL_FRAMEWORK
#   conclude_FRAMEWORK EXIT_CODE   writes a failed record if the ranks left none
#   prepare_nodes_FRAMEWORK        (optional) prepares and checks each node before the ranks start
#   finish_task                    (optional) runs the site's clean-up
# A script whose array tasks share a job also sets tasks_per_job, last_array_task_id, limit_seconds,
# warning_seconds and end_seconds.
#
# Files and markers of an array task: docs/run-directory.md. Failures: docs/faults.md.

: "${run_dir:?}" "${group_id:?}"
# sbatch passes on the user's token of auth/jwt, with which any program of a rank could submit jobs
unset SLURM_JWT
job_id=${SLURM_ARRAY_JOB_ID:-${DLPERF_SLURM_JOB_ID:-by-hand}}
tasks_per_job='' last_array_task_id=0 limit_seconds=0 warning_seconds=0 end_seconds=0
# number of launch failures with the same exit code after which the array is held
failures_to_hold=3

run_array_tasks() { # [ARRAY_TASK_ID]
  if [ -z "$tasks_per_job" ]; then
    run_array_task "${SLURM_ARRAY_TASK_ID:-${1:?which array task? usage: bash SCRIPT ARRAY_TASK_ID}}"
  elif [ $# -gt 0 ]; then
    run_array_task "$1"
  else
    local first=$((${SLURM_ARRAY_TASK_ID:-0} * tasks_per_job))
    local last=$((first + tasks_per_job - 1))
    run_shared_job "$first" "$((last < last_array_task_id ? last : last_array_task_id))"
  fi
}

run_array_task() { # ARRAY_TASK_ID
  # the record contains the time from here to the first step
  export DLPERF_SLURM_BEGUN_AT DLPERF_SLURM_LAUNCHED_AT
  DLPERF_SLURM_BEGUN_AT=$(date +%s.%N)
  begun_at='' launcher_pid='' has_launched='' error_text=''
  array_task_id=$1
  marker=$run_dir/markers/$group_id.$array_task_id
  mapfile -t array_tasks < "$run_dir/scripts/$group_id.tasks"
  IFS=$'\t' read -r framework attempt_dir starter _ <<< "${array_tasks[$array_task_id]}"
  attempt_dir=$run_dir/$attempt_dir
  claim_attempt
  exit_if_measured
  make_start_folder
  reserve_disk_space
  redirect_output
  raise_limits
  export_worker_environment
  trap end_array_task EXIT
  trap 'exit 143' TERM
  trap 'exit 130' INT
  trap warn_ranks USR1
  write_marker started 0
  prepare_task
  export_pythonpath
  set -u
  if declare -F "prepare_nodes_$framework" > /dev/null; then
    launch_in_environment "prepare_nodes_$framework"
    [ "$exit_code" -eq 0 ] || exit "$exit_code"
  fi
  DLPERF_SLURM_LAUNCHED_AT=$(date +%s.%N)
  launch_in_environment "${starter}_$framework"
  exit "$exit_code"
}

## Before the launch

# The first job to start owns the attempt, so that it runs once even if it was submitted twice. A
# requeued job keeps its id. The claim is the first file of an array task.
claim_attempt() {
  local owner
  error_text=$(mkdir -p "$attempt_dir" 2>&1) || fail_on_disk_error
  if ! error_text=$(ln -s "$job_id" "$attempt_dir/claim" 2>&1); then
    owner=$(readlink "$attempt_dir/claim") || fail_on_disk_error
    if [ "$owner" != "$job_id" ]; then
      echo "$attempt_dir belongs to job $owner; to run it again, remove $attempt_dir/claim" >&2
      exit 0
    fi
  fi
}

# Slurm may restart a task that was successful: after a requeue by hand, or if slurmctld died before
# slurmd reported the end.
exit_if_measured() {
  local record
  [ "$job_id" != by-hand ] || return 0
  for record in "$attempt_dir"/s*/record.json; do
    if grep -qs '^ "status": "ok"' "$record"; then
      echo "$record is valid already: nothing to run" >&2
      exit 0
    fi
  done
}

# Each start has its own folder, which mkdir makes only once. A process that survives on a node that
# Slurm has marked DOWN writes only to the folder of its own start.
make_start_folder() {
  local file start=${SLURM_RESTART_COUNT:-0}
  until error_text=$(mkdir "$attempt_dir/s$start" 2>&1); do
    [ -d "$attempt_dir/s$start" ] || fail_on_disk_error
    start=$((start + 1))
  done
  for file in "$attempt_dir"/*; do
    if [ -f "$file" ] && [ ! -L "$file" ] && [ "${file##*/}" != err ]; then
      error_text=$(cp "$file" "$attempt_dir/s$start/" 2>&1) || fail_on_disk_error
    fi
  done
  write_case "$attempt_dir/s$start"
  attempt_dir=$attempt_dir/s$start
  marker=$marker.s$start
}

# case.json is the line of cases.jsonl at the row's byte offset, with the seed of the row and the
# repeat and attempt of the folder's name. An external script is the text at another offset.
write_case() { # FOLDER
  local row path text
  IFS=$'\t' read -ra row <<< "${array_tasks[$array_task_id]}"
  IFS=/ read -ra path <<< "${row[1]}"
  if ! IFS= read -r text < <(tail -c "+$((row[5] + 1))" "$run_dir/cases.jsonl") ||
    [[ $text != '{"axes": '*" \"case_id\": \"${path[1]}\", "*'}' ]]; then
    fail_array_task 69 "case ${path[1]} is missing in $run_dir/cases.jsonl as read on $(hostname): check the shared file system"
  fi
  error_text=$({
    printf '{"attempt": %d, "repeat": %d, "seed": %d, %s\n' \
      "${path[3]#a}" "${path[2]#r}" "${row[4]}" "${text#\{}" > "$1/case.json"
  } 2>&1) || fail_on_disk_error
  if [ -n "${row[6]:-}" ]; then
    IFS= read -r -d '' text < <(tail -c "+$((row[6] + 1))" "$run_dir/scripts/external_scripts") ||
      fail_array_task 69 "a script is missing in $run_dir/scripts/external_scripts as read on $(hostname): check the shared file system"
    error_text=$({ printf '%s' "$text" > "$1/script.sh"; } 2>&1) || fail_on_disk_error
  fi
}

# Reserve 1 MiB for the files that are written at the end, in case the disk is full by then.
reserve_disk_space() {
  reserve_file=$attempt_dir/.reserve
  if ! error_text=$(write_mebibyte "$reserve_file" 2>&1); then
    rm -f "$reserve_file"
    fail_on_disk_error
  fi
}

write_mebibyte() { # FILE
  dd if=/dev/zero of="$1" bs=64K count=16 conv=fsync status=none
}

# Redirect the output to the attempt's folder; the scheduler's log names that folder.
redirect_output() {
  log_line="output of this array task: $attempt_dir, files out and err"
  echo "$log_line"
  log_file=
  if [ -z "$tasks_per_job" ]; then
    log_file=$(readlink "/proc/$$/fd/1")
    log_file=$run_dir/scripts/${log_file##*/}
    [ "$log_file" -ef "/proc/$$/fd/1" ] || log_file=
  fi
  exec >> "$attempt_dir/out" 2>> "$attempt_dir/err" < /dev/null
}

# Data loaders need open files, and RDMA locked memory: raise the soft limits, open files not to
# billions, which some programs close one by one.
raise_limits() {
  local open_files
  open_files=$(ulimit -S -n)
  if [ "$open_files" != unlimited ] && [ "$open_files" -lt 65536 ]; then
    ulimit -S -n 65536 2> /dev/null || ulimit -S -n "$(ulimit -H -n)"
  fi
  ulimit -S -l "$(ulimit -H -l)"
} 2> /dev/null

export_worker_environment() {
  # in a job of `sbatch --export=NONE`, srun would start ranks without an environment
  export SLURM_EXPORT_ENV=ALL
  # without HOME bash expands ~ by the password database; Open MPI does not start without a home
  [ -n "${HOME:-}" ] || { unset HOME; export HOME=~; }
  export PYTHONPATH=$run_dir/code PYTHONNOUSERSITE=1 PYTHONUNBUFFERED=1
  unset PYTHONHOME
  # telemetry needs NVML's numbers: by default CUDA numbers GPUs by speed, NVML by PCI bus id
  export CUDA_DEVICE_ORDER=${CUDA_DEVICE_ORDER:-PCI_BUS_ID}
}

# A site's setup, modules or environment may have replaced PYTHONPATH: ranks need code/ on it.
export_pythonpath() {
  [[ :${PYTHONPATH:-}: == *":$run_dir/code:"* ]] || export PYTHONPATH=$run_dir/code${PYTHONPATH:+:$PYTHONPATH}
}

## Launch and end

# Run a function in the framework's environment; its exit code is in exit_code. It runs in the
# attempt's folder, as python -m would import a checkout in the working directory instead of code/.
# A trapped signal ends `wait`, but not the process, so that `wait` is repeated.
launch_in_environment() { # FUNCTION
  has_launched=1
  ("activate_$framework"; export_pythonpath; cd "$attempt_dir" || exit 69; "$1") &
  launcher_pid=$!
  wait "$launcher_pid"
  exit_code=$?
  while kill -0 "$launcher_pid" 2> /dev/null; do
    wait "$launcher_pid"
    exit_code=$?
  done
  launcher_pid=
}

# The warning before the time limit, which Slurm also sends when it preempts a job with a grace time:
# the ranks write their progress, and end.
warn_ranks() {
  if [[ $(timeout 10 scontrol show job "${SLURM_JOB_ID:-}" 2> /dev/null) == *" PreemptTime="[0-9]* ]]; then
    touch "$attempt_dir/preempted"
  fi
  [ -z "$launcher_pid" ] || kill -USR1 "$launcher_pid" 2> /dev/null
}

end_array_task() {
  exit_code=$?
  trap '' TERM INT
  trap - EXIT
  if [ -n "$launcher_pid" ]; then
    kill -TERM "$launcher_pid" 2> /dev/null && wait "$launcher_pid"
  fi
  if declare -F finish_task > /dev/null; then
    finish_task
  fi
  set +u
  # on a full disk the task could not write its error
  if [ "$exit_code" -ne 0 ]; then
    write_mebibyte "$reserve_file.tried" || write_refusal
    rm -f "$reserve_file.tried"
  fi 2> /dev/null
  rm -f "$reserve_file"
  (
    # what failed before any launch was reported, and is the reason
    if [ -n "$has_launched" ]; then
      "activate_$framework"
    else
      "activate_$framework" 2> /dev/null
    fi
    export_pythonpath
    cd "$attempt_dir" || exit 69
    "conclude_$framework" "$exit_code"
  )
  write_marker finished "$exit_code"
  # remove a log with no other line than the one about out and err
  if [ "$exit_code" -eq 0 ] && [ -n "$log_file" ] && [ "$(< "$log_file")" == "$log_line" ]; then
    rm -f "$log_file"
  fi 2> /dev/null
  case $exit_code in
    0 | 130 | 137 | 143) ;;
    *) [ -e "$attempt_dir/record.json" ] || hold_after_failures "$exit_code" ;;
  esac
  exit "$exit_code"
}

## Markers

# `status` may read a marker at any time, so it is renamed into place. `finished` contains all
# values of `started`, and replaces it.
write_marker() { # KIND EXIT_CODE
  if printf '{"job_id": "%s", "begun": "%s", "time": "%s", "nodes": "%s", "restart": %d, "exit_code": %d}\n' \
    "$job_id" "${begun_at:=$(format_utc_time)}" "$(format_utc_time)" "${SLURM_JOB_NODELIST:-$(hostname)}" \
    "${SLURM_RESTART_COUNT:-0}" "$2" > "$marker.$1.partial"; then
    if mv "$marker.$1.partial" "$marker.$1" && [ "$1" == finished ]; then
      rm -f "$marker.started"
    fi
  else
    rm -f "$marker.$1.partial"
    write_refusal
  fi 2> /dev/null
}

format_utc_time() {
  date --utc +%Y-%m-%dT%H:%M:%SZ
}

# A symbolic link with a short text can be written to a full disk.
write_refusal() {
  ln -sfn "${error_text:-the disk cannot be written from $(hostname)}" "$marker.refused" ||
    ln -sfn "the disk cannot be written from $(hostname)" "$marker.refused"
}

fail_on_disk_error() {
  local free disk
  read -r _ _ _ free _ disk < <(df -Pm -- "$run_dir" | tail -n 1)
  fail_array_task 73 "the disk at $disk cannot be written from $(hostname), $free MiB are free: ${error_text##*: }"
}

# End an array task that has no start folder yet.
fail_array_task() { # EXIT_CODE MESSAGE
  error_text=$2
  echo "$error_text" >&2
  echo "$error_text" 2> /dev/null >> "$attempt_dir/err"
  write_marker finished "$1"
  hold_after_failures "$1" 2> /dev/null
  exit "$1"
}

# A failing launch takes a second, so that the whole array would fail soon: hold tasks that have not
# started, until the cause is fixed.
hold_after_failures() { # EXIT_CODE: of an array task without a record
  local link last_words failures=0
  [ "$job_id" != by-hand ] || return 0
  last_words=$(readlink "$marker.refused" || tail -n 1 "$attempt_dir/err" | tr -d "\0")
  ln -sfn "exit code $1 on $(hostname): $last_words" "$marker.unlaunched" ||
    ln -sfn "exit code $1 on $(hostname): " "$marker.unlaunched"
  for link in "$run_dir/markers/$group_id".*.unlaunched; do
    if [[ $(readlink "$link") == "exit code $1 on "* ]]; then
      ((failures += 1))
    fi
  done
  if [ "$failures" -ge "$failures_to_hold" ]; then
    # uhold fails for tasks that have ended, but holds the others; without Slurm the marker holds
    # them
    [ -z "${SLURM_ARRAY_JOB_ID:-}" ] || scontrol uhold "$SLURM_ARRAY_JOB_ID" > /dev/null 2>&1
    mv -T "$marker.unlaunched" "$run_dir/markers/$group_id.held"
    rm -f "$run_dir/markers/$group_id".*.unlaunched
  fi
}

## For prepare_task and activate_FRAMEWORK

# Run the site's setup lines; a command may have several lines. A failing line ends the array task.
run_setup() { # LINE...
  local setup_line setup='' setup_lines=("$@")
  [[ "$*" != *module* ]] || define_module
  set --
  for setup_line in "${setup_lines[@]}"; do
    setup+=$setup_line$'\n'
    # bash -n only warns of a here-document without its end, so any output means an incomplete
    # command
    if [[ $setup_line == *\\ ]] || [ -n "$(LC_ALL=C "$BASH" -n <<< "$setup" 2>&1)" ]; then
      continue
    fi
    eval "$setup" || fail_setup "$?" "$setup"
    setup=''
  done
  eval "$setup" || fail_setup "$?" "$setup"
}

fail_setup() { # EXIT_CODE LINES
  echo "the site's setup line failed with exit code $1: ${2%$'\n'}" >&2
  exit 69
}

load_modules() { # MODULE...
  local module_name module_names=("$@")
  set --
  define_module || {
    echo "no command 'module' on $(hostname) for ${module_names[*]}: MODULESHOME, LMOD_CMD, /etc/profile.d and a login shell define none" >&2
    exit 69
  }
  for module_name in "${module_names[@]}"; do
    module load "$module_name" || {
      echo "module load $module_name failed with exit code $? on $(hostname)" >&2
      exit 69
    }
  done
}

# `module` is a function of login shells, which other shells than bash do not export.
define_module() {
  local init_file lmod_cmd=${LMOD_CMD:-}
  for init_file in "${MODULESHOME:-}/init/bash" "${lmod_cmd%/libexec/lmod}/init/bash" /etc/profile.d/*.sh; do
    ! type module > /dev/null 2>&1 || return 0
    if grep -qs module "$init_file"; then
      # shellcheck source=/dev/null
      . "$init_file"
    fi
  done
  # else ask a login shell: ~/.bash_profile may print, and start a process that keeps the pipe open
  type module > /dev/null 2>&1 || {
    read -r -t 30 -d '' && read -r -t 30 -d '' init_file && eval "$init_file"
  } < <(bash -lc 'printf "\0"; declare -f module; printf "\0"' 2> /dev/null)
  type module > /dev/null 2>&1
}

# Export the key with which the ranks of one launch sign their messages; no file contains it.
export_secret() {
  DLPERF_SLURM_SECRET=$(od -v -An -tx1 -N32 /dev/urandom | tr -d ' \n')
  export DLPERF_SLURM_SECRET
}

export_torchrun_settings() {
  # below the ephemeral ports; jobs that share a node have different ids. torchrun listens on the node
  # of this script
  local tries
  export DLPERF_SLURM_PORT=$((20000 + ${SLURM_JOB_ID:-0} % 10000))
  for ((tries = 0; tries < 100; tries++)); do
    is_port_taken "$DLPERF_SLURM_PORT" || break
    DLPERF_SLURM_PORT=$((20000 + (DLPERF_SLURM_PORT + 1) % 10000))
  done
  # newer versions of torchrun then forward SIGUSR1, the warning before the time limit, to the ranks
  export PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1
}

# Whether a process on this host listens on a TCP port (proc_net_tcp(5): state 0A is LISTEN).
is_port_taken() { # PORT
  grep -qsE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$1") [0-9A-F:]+ 0A " /proc/net/tcp /proc/net/tcp6
}

# Without the environment's own python, another one of PATH would run. Each rank checks it too.
check_python() { # PATH_OF_PYTHON
  export DLPERF_SLURM_PYTHON=$1
  [ ! -x "$1" ] || return 0
  echo "the environment's python cannot be run on $(hostname): $1" >&2
  exit 69
}

check_host_python() { # PYTHON
  if ! "$1" -c 'import sys; sys.exit(sys.version_info < (3, 7))'; then
    echo "host_python of the site's environment: $1 does not exist on $(hostname), or is older than 3.7" >&2
    exit 69
  fi
}

# Export the image for the record. COMMAND prints the digest of an image that is not a file.
export_container() { # PYTHON RUNTIME IMAGE [COMMAND...]
  local python=$1
  export DLPERF_SLURM_CONTAINER=$2 DLPERF_SLURM_CONTAINER_IMAGE=$3
  shift 2
  DLPERF_SLURM_CONTAINER_DIGEST=$("$python" -m dlperf_slurm.worker.image_digest "$run_dir/images" "$@")
  export DLPERF_SLURM_CONTAINER_DIGEST
}

## Several array tasks in one job, one after the other

# Each array task is a process group, so that one that fails or times out does not end the others.
# Array tasks that the job does not start are submitted again.
run_shared_job() { # FIRST LAST
  local array_tasks task_pid='' timer_pid is_signalled='' has_failed='' exit_code id marker attempt_dir owner
  mapfile -t array_tasks < "$run_dir/scripts/$group_id.tasks"
  # forward a signal to the running array task, and start no further one
  trap 'is_signalled=1; [ -z "$task_pid" ] || kill -TERM "$task_pid"' TERM
  trap 'is_signalled=1; [ -z "$task_pid" ] || kill -INT "$task_pid"' INT
  trap 'is_signalled=1; [ -z "$task_pid" ] || kill -USR1 "$task_pid"' USR1
  for ((id = $1; id <= $2; id++)); do
    marker=$run_dir/markers/$group_id.$id
    # a requeued job continues after the tasks that are over
    [ ! -L "$marker.over" ] || continue
    [ -z "$is_signalled" ] || break
    IFS=$'\t' read -r _ attempt_dir _ <<< "${array_tasks[$id]}"
    if [ -L "$run_dir/markers/$group_id.held" ]; then
      exit_code=1
      owner=$(readlink "$run_dir/$attempt_dir/claim" || echo "$job_id")
      [ "$owner" != "$job_id" ] || printf CANCELLED > "$marker.killed"
    else
      # with job control each background job is a process group
      set -m
      bash "$0" "$id" < /dev/null &
      task_pid=$!
      watch_time_limit "$task_pid" "$marker" > /dev/null 2>&1 &
      timer_pid=$!
      set +m
      wait "$task_pid"
      exit_code=$?
      while kill -0 "$task_pid" 2> /dev/null; do
        wait "$task_pid"
        exit_code=$?
      done
      kill -KILL -- "-$timer_pid" "-$task_pid" 2> /dev/null
      wait "$timer_pid" 2> /dev/null
      task_pid=
      owner=$(readlink "$run_dir/$attempt_dir/claim")
    fi
    if [ "$exit_code" -ne 0 ]; then
      has_failed=1
      [ "$job_id" = by-hand ] || cancel_steps 2> /dev/null
    fi
    # not over: an array task that ended with its job, or that another job owns
    [ -n "$is_signalled" ] || [ "$owner" != "$job_id" ] || ln -sfn "exit code $exit_code" "$marker.over"
  done
  [ -z "$is_signalled" ] || exit 143
  [ -z "$has_failed" ] || exit 1
  exit 0
}

watch_time_limit() { # PID MARKER
  sleep $((limit_seconds - warning_seconds))
  if [ "$warning_seconds" -gt 0 ]; then
    kill -USR1 "$1"
    sleep "$warning_seconds"
  fi
  printf TIMEOUT > "$2.killed.partial" && mv "$2.killed.partial" "$2.killed"
  kill -TERM "$1"
  sleep "$end_seconds"
  kill -KILL -- "-$1"
}

# Steps that outlive their array task would block the cores for the next one.
cancel_steps() {
  local job=$SLURM_JOB_ID step
  [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
  for step in $(squeue --noheader --steps --jobs="$job" --format=%i); do
    [[ $step == *.batch || $step == *.extern ]] || scancel "$step"
  done
}
