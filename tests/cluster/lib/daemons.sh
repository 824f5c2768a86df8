# shellcheck shell=bash
# Daemons of the head node: munged, mariadbd, slurmdbd, slurmctld, in that order; and the accounts.

start_daemons() {
  is_alive munged || start_munged
  if [[ $ACCOUNTING == yes ]]; then
    is_alive mariadbd || start_mariadbd
    is_alive slurmdbd || start_slurmdbd
  fi
  is_alive slurmctld || start_slurmctld
  if [[ $ACCOUNTING == yes && ! -f $TESTBED/etc/accounts.done ]]; then create_accounts; fi
}

stop_daemons() {
  stop_process slurmctld TERM 10
  stop_process slurmdbd TERM 10
  stop_process mariadbd TERM 20
  stop_process munged TERM 5
  rm -f "$TESTBED"/run/*.{self,sock,ready} "$TESTBED"/run/munge.sock.lock
}

is_running() { # at least in part
  is_alive munged || is_alive mariadbd || is_alive slurmctld
}

start_munged() {
  rm -f "$TESTBED"/run/munge.sock*
  start_process munged munged --foreground --force --num-threads=4 \
    --key-file="$TESTBED/etc/munge.key" --seed-file="$TESTBED/etc/munge.seed" \
    --socket="$TESTBED/run/munge.sock" --pid-file="$TESTBED/run/munged.self" \
    --log-file="$TESTBED/log/munged.log"
  await_process munged 10 test -S "$TESTBED/run/munge.sock"
}

start_mariadbd() {
  if [[ ! -d $TESTBED/db/mysql ]]; then
    # --skip-name-resolve --force: else it fails where the host's name does not resolve
    mariadb-install-db --defaults-file="$TESTBED/etc/my.cnf" --skip-name-resolve --force \
      --auth-root-authentication-method=normal --skip-test-db &> "$TESTBED/log/install-db.log" ||
      die "mariadb-install-db failed, see $TESTBED/log/install-db.log"
  fi
  start_process mariadbd mariadbd --defaults-file="$TESTBED/etc/my.cnf"
  await_process mariadbd 30 query_database 'select 1'
  query_database "create database if not exists slurm_acct_db;
    create user if not exists slurm@localhost identified by 'slurm';
    grant all on slurm_acct_db.* to slurm@localhost"
}

query_database() { # SQL
  mariadb --no-defaults --user=root --socket="$TESTBED/run/mysql.sock" --execute "$1"
}

start_slurmdbd() {
  start_process slurmdbd slurmdbd -D
  await_process slurmdbd 30 sacctmgr --noheader list cluster
  # Before slurmctld: with AccountingStorageEnforce it does not start in an unknown cluster.
  sacctmgr --noheader --parsable2 list cluster format=cluster | grep -qx "$CLUSTER" ||
    sacctmgr --immediate add cluster "$CLUSTER" > "$TESTBED/log/sacctmgr.log" 2>&1
}

start_slurmctld() {
  if [[ $MODE == plain ]]; then
    start_process slurmctld slurmctld -D -i
  else
    # SlurmctldHost must be its host's name: give it the name "head" and a hosts file that knows it.
    # shellcheck disable=SC2016 # $1 is the inner bash's
    start_process slurmctld unshare --uts --mount bash -euc '
      hostname head
      mount --make-rprivate /
      mount --bind "$1/etc/hosts" /etc/hosts
      exec slurmctld -D -i' bash "$TESTBED"
  fi
  await_process slurmctld 20 is_slurmctld_up
}

is_slurmctld_up() { scontrol ping | grep -q UP; }

create_accounts() {
  # The database learns the TRES gres/gpu, which a QOS limits, from slurmctld's first contact.
  await_process slurmctld 20 has_gpu_tres
  local statements
  # In two sessions: sacctmgr remembers for a whole session the QOS that it saw first.
  for statements in accounts users; do
    grep -v '^#' "$TESTBED/etc/$statements.sacctmgr" |
      sacctmgr --immediate >> "$TESTBED/log/sacctmgr.log" 2>&1 || true
  done
  # sacctmgr that reads a file of statements goes on after an error, with exit code 0.
  if grep -i error: "$TESTBED/log/sacctmgr.log" >&2; then
    die "sacctmgr failed, see $TESTBED/log/sacctmgr.log"
  fi
  accounts_checksum > "$TESTBED/etc/accounts.done"
}

has_gpu_tres() { sacctmgr --noheader --parsable2 list tres format=type,name | grep -qx 'gres|gpu'; }
