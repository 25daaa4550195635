#!/bin/sh
# Installs what the build and the tests need from the distribution's packages, if anything is missing: Debian, Ubuntu and the RHEL family (RHEL, Rocky,
# Alma, Fedora; some packages of the tests are in EPEL and CRB there). Root is used for the package manager alone.
#   install-deps.sh build|check|lab|deb|rpm|container|aarch64|ci [--print]     --print: says what is missing and installs nothing
set -eu
what=${1:-check}
wait=600 # seconds for another package manager to finish: a new machine updates itself

# One line for a package: its name on Debian and Ubuntu, on the RHEL family ('-': nothing of that name is needed, or there), and who needs it.
packages() {
    cat <<'END'
gcc                  gcc                build
libc6-dev            glibc-devel        build
make                 make               build
libibverbs-dev       rdma-core-devel    build
check                check-devel        check
libsubunit-dev       subunit-devel      check
libjansson-dev       jansson-devel      check lab
ibverbs-utils        libibverbs-utils   check lab
ibverbs-providers    libibverbs         check lab
perftest             perftest           check lab
jq                   jq                 check
binutils             binutils           check
procps               procps-ng          check lab
iproute2             iproute            check lab
spin                 -                  check
qemu-system-x86      qemu-kvm           lab
busybox-static       busybox            lab
rdma-core            rdma-core          lab
xz-utils             xz                 lab
zstd                 zstd               lab
clang                clang              ci
clang-format-16      clang-tools-extra  ci
libclang-rt-14-dev   compiler-rt        ci
valgrind             valgrind           ci
librsvg2-bin         librsvg2-tools     ci
tmux                 tmux               ci
tcl                  tcl                ci
openmpi-bin          openmpi            ci
libopenmpi-dev       openmpi-devel      ci deb rpm
libhwloc-dev         hwloc-devel        ci deb rpm
debhelper            -                  deb
lintian              -                  deb
bash-completion      -                  deb
rpm                  rpm-build          rpm
rpmlint              rpmlint            rpm
buildah              buildah            container
mmdebstrap           -                  container
gcc-aarch64-linux-gnu -                 aarch64
libc6-dev-arm64-cross -                 aarch64
qemu-user-static     -                  aarch64
END
}
case $what in
build | check | lab | deb | rpm | container | aarch64 | ci) ;;
*)
    echo "usage: install-deps.sh build|check|lab|deb|rpm|container|aarch64|ci [--print]" >&2
    exit 2
    ;;
esac
case ${2:-} in
'' | --print) ;;
*)
    echo "install-deps: $2: unknown; usage: install-deps.sh build|check|lab|deb|rpm|container|aarch64|ci [--print]" >&2
    exit 2
    ;;
esac
# Who installs check also builds, and ci is both and more.
case $what in
build) users=build ;;
check) users="build check" ;;
lab) users="build lab" ;;
deb) users="build deb" ;;
rpm) users="build rpm" ;;
container) users="build check deb container" ;;
aarch64) users="build check aarch64" ;;
ci) users="build check ci deb rpm container" ;;
esac
if command -v dpkg-query >/dev/null 2>&1; then
    column=1 manager=apt-get
elif command -v rpm >/dev/null 2>&1; then
    column=2 manager=$(command -v dnf || command -v yum || echo dnf)
else
    column=1 manager=
fi
has() {
    case $manager in
    apt-get) [ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null)" = "install ok installed" ] ;;
    '') false ;;
    *) rpm -q "$1" >/dev/null 2>&1 ;;
    esac
}
list=$(packages | awk -v users="$users" -v column="$column" '
    BEGIN { n = split(users, u, " ") }
    { for (i = 3; i <= NF; i++) for (j = 1; j <= n; j++) if ($i == u[j] && $column != "-" && !seen[$column]++) print $column }')
missing=
for p in $list; do
    has "$p" || missing="$missing $p"
done
# promtool alone, unpacked into build/promtool and not installed: its package would start a server. Without it the tests skip what needs it.
fetch_promtool() {
    if command -v promtool >/dev/null 2>&1 || [ -x build/promtool/promtool ] || [ "$manager" != apt-get ]; then return 0; fi
    echo "unpacking promtool of the package prometheus into build/promtool"
    mkdir -p build/promtool && (
        cd build/promtool && apt-get download -qq prometheus >/dev/null 2>&1 &&
            dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xf - --strip-components=3 ./usr/bin/promtool && rm -f prometheus_*.deb
    ) || echo "install-deps: promtool could not be fetched" >&2
}
if [ -z "$missing" ]; then
    if [ "$what" = ci ] && [ -z "${2:-}" ]; then fetch_promtool; fi
    exit 0
fi
if [ -z "$manager" ]; then
    echo "install-deps: neither dpkg nor rpm is here; please install (names as in Debian):$missing" >&2
    exit 1
fi
if [ "${2:-}" = --print ]; then
    echo "missing:$missing"
    exit 0
fi
if [ "$(id -u)" = 0 ]; then
    sudo=
elif command -v sudo >/dev/null 2>&1; then
    sudo=sudo
else
    echo "install-deps: missing:$missing; run as root: $manager install$missing" >&2
    exit 1
fi
echo "installing with $manager, which may take some minutes in silence:$missing"
if [ "$manager" = apt-get ]; then
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C # what apt-get says of the lock is read
    # The lists have a lock that apt-get update does not wait for.
    end=$(($(date +%s) + wait))
    until said=$($sudo apt-get update -qq 2>&1); do
        case $said in
        *"Could not get lock"* | *"Unable to lock"*) [ "$(date +%s)" -lt "$end" ] && sleep 2 && continue ;;
        esac
        echo "install-deps: apt-get update: $said" >&2
        exit 1
    done
    # shellcheck disable=SC2086
    $sudo apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout="$wait" $missing >/dev/null
else
    # shellcheck disable=SC2086
    $sudo "$manager" install -y -q $missing
fi
if [ "$what" = ci ]; then fetch_promtool; fi
