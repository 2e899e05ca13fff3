# Shared by the scripts in this folder: sourced by each, run by none.
# shellcheck shell=bash

set -euo pipefail
# The server's user must be able to read what we install, whatever the caller's umask.
umask 022

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly ROOT
readonly BUILD="$ROOT/build"

say() { printf '%s\n' "$*"; }
step() { printf '\n==> %s\n' "$*"; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Prints the server version asked for (default 15), or ends with what is wrong with it.
server_version() {
    case ${1:-15} in
        15 | 16 | 17 | 18) say "${1:-15}" ;;
        *) die "PostgreSQL version '$1' is not supported: choose 15, 16, 17 or 18" ;;
    esac
}

# --- Who runs the server, and where -------------------------------------------------------------

# The server refuses to run as root, so root hands it to another user.
server_user() {
    if [[ $EUID -ne 0 ]]; then
        id -un
    elif getent passwd postgres >/dev/null; then
        say postgres
    else
        say nobody
    fi
}

# Runs a command as the server's user, from / because that user may not enter the current folder.
as_server_user() {
    if [[ $EUID -eq 0 ]]; then
        (cd / && runuser -u "$(server_user)" -- "$@")
    else
        "$@"
    fi
}

# The folder for server programs and data: build/ in the checkout, except where its path is closed to the server's user
# (a checkout under /root, say). Then it is a folder in /var/tmp that belongs to this checkout.
server_home() {
    mkdir -p "$BUILD"
    if as_server_user test -x "$BUILD"; then
        say "$BUILD"
        return
    fi
    local home
    home=/var/tmp/awa_ingest_build-$(printf '%s' "$ROOT" | sha256sum | cut -c1-12)
    mkdir -p "$home"
    # Anyone may create names in /var/tmp: never build or run programs in a folder of somebody else.
    [[ -O $home && ! -L $home ]] || die "$home belongs to another user; remove it"
    say "$home"
}

# The private server's folder, and the folder with its programs.
server_tree() { say "$(server_home)/pg/$1"; }
server_bin() { say "$(server_tree "$1")/bin"; }

# Whether /dev/shm can hold the data of test servers: hundreds of databases with a thousand files each, 5 GB until a test program
# ends. On a disk their making takes several times as long.
has_room_in_memory() {
    local room free
    room=$(df --output=avail -BM /dev/shm 2>/dev/null | tail -n 1) || return
    free=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
    as_server_user test -w /dev/shm && ((${room//[!0-9]/} >= 8192 && free >= 8192))
}

# --- Cargo --------------------------------------------------------------------------------------

rust_minor() { rustc --version | sed -E 's/^rustc 1\.([0-9]+).*/\1/'; }

check_rust() {
    if ! rustc --version >/dev/null || ! cargo --version >/dev/null; then
        die "no Rust toolchain on the PATH: install Rust 1.95 or newer (https://rustup.rs)"
    fi
    (($(rust_minor) >= 95)) || die "$(rustc --version) is too old: Rust 1.95 or newer is needed"
}

# Makes cargo ready to build the extension for server version $1: our own pgrx configuration, our own cargo-pgrx where we
# had to build one, and one target folder a server version, so that versions never rebuild each other's bindings.
use_pgrx() {
    export PGRX_HOME="$BUILD/pgrx/$1"
    export CARGO_TARGET_DIR="$ROOT/target/ext-pg$1"
    export PATH="$BUILD/tools/bin:$PATH"
    if pgrx_wants_newer_rust; then
        export PGRX_BUILD_FLAGS="--ignore-rust-version ${PGRX_BUILD_FLAGS:-}"
    fi
}

# pgrx declares Rust 1.96 and builds with 1.95.
pgrx_wants_newer_rust() { (($(rust_minor) < 96)); }

# Flags for cargo commands that build pgrx without going through cargo pgrx.
pgrx_cargo_flags() {
    if pgrx_wants_newer_rust; then say --ignore-rust-version; fi
}

# --- Installing ---------------------------------------------------------------------------------

# install_files FOLDER [COMMAND...]: moves the files below FOLDER to where their paths in it say, by COMMAND (sudo). A library is never
# written in place: servers have it mapped, and would crash.
install_files() {
    local folder=$1 file
    shift
    (cd "$folder" && find . -type f -printf '%P\0') | while IFS= read -r -d '' file; do
        "$@" install -m 755 -d "/$(dirname "$file")"
        "$@" install -m "$([[ $file == *.so ]] && echo 755 || echo 644)" "$folder/$file" "/$file.new"
        "$@" mv -f "/$file.new" "/$file"
    done
}
