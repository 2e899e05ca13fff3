# Debian packages that we need: sourced by the setup scripts. First `need_...`, then `install_missing`.
# shellcheck shell=bash

missing=()

# need PACKAGE COMMAND...: the package is missing unless the command succeeds.
need() {
    local package=$1
    shift
    if ! "$@" >/dev/null 2>&1; then missing+=("$package"); fi
}

need_program() { need "$1" command -v "$2"; }
need_library() { need "$1" has_library "$2"; }

has_library() { grep -qF "$1 " <(/sbin/ldconfig -p); }

# bindgen, which translates the server's headers, loads libclang and needs clang's own headers beside it.
has_libclang() {
    [[ -n ${LIBCLANG_PATH:-} ]] && return
    compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' && compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stddef.h'
}

need_build_packages() {
    need_program gcc cc
    need libc6-dev test -e /usr/include/stdio.h
    need libclang-dev has_libclang
}

# For a server from PyPI: pip, and the libraries that the server was linked with.
need_wheel_packages() {
    need python3-pip python3 -m pip --version
    need tzdata test -d /usr/share/zoneinfo
    need_library libxml2 libxml2.so.2
    need_library libssl3 libssl.so.3
    need_library libgssapi-krb5-2 libgssapi_krb5.so.2
    need_library libreadline8 libreadline.so.8
    need_library liblz4-1 liblz4.so.1
    need_library libzstd1 libzstd.so.1
}

# Single-file programs with text blocks, in source form: a JDK of Java 17 or newer.
has_jdk() { java --list-modules | grep -E '^jdk\.compiler@(1[7-9]|[2-9][0-9])'; }

# For the samples of docs/clients.md; what is not Debian's comes with `setup-clients`.
need_client_packages() {
    need python3-pip python3 -m pip --version
    need_program nodejs node
    need_program npm npm
    need default-jdk-headless has_jdk
    need libpostgresql-jdbc-java test -e /usr/share/java/postgresql.jar
}

# Installs as root, or with sudo where that asks for no password; otherwise ends with the command for an administrator.
install_missing() {
    if ((${#missing[@]} == 0)); then return; fi
    local as_root=()
    if [[ $EUID -ne 0 ]]; then as_root=(sudo -n); fi
    if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
        die "packages are missing and cannot be installed from here. As root: apt-get install ${missing[*]}"
    fi

    step "Installing packages: ${missing[*]}"
    "${as_root[@]}" apt-get update -qq || say "warning: apt-get update failed; trying with the package lists at hand"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=120 "${missing[@]}" </dev/null >/dev/null
    missing=()
}
