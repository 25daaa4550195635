#!/bin/sh
# The plugin on the kernel's RDMA stack: r2_perf and the ABI driver between VMs with Soft-RoCE, failures in the middle. README.md of this folder.
# Usage: check_lab.sh BUILD [NAME|NAME...]     only scenarios whose name contains one of these. Closing line "N passed, N failed"; a machine without QEMU is a skip, with the reason.
# Every scenario ends within LIMIT; what it printed is kept in BUILD/lab/check/.
B=${1:-build}
only=${2:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 2
B=$(cd "$B" && pwd) || exit 2
W=$B/lab/check
LIMIT=90
PATIENCE=45s # r2_perf's, less than that
. tests/lab/scn_lib.sh
. tests/lab/scn_cases.sh

lab_start || exit $?
trap 'lab_end; exit 130' INT TERM
trap lab_end EXIT
cases_healthy
cases_faults 3
cases_faults 7
cases_channel
cases_last_resort
cases_three_hosts
cases_blame
cases_blame_process
cases_rates
cases_latency
echo
blame_table
echo "$passed passed, $failed failed$([ $skipped = 0 ] || echo ", $skipped skipped")"
[ $failed = 0 ] && [ $passed -gt 0 ]
