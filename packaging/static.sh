#!/usr/bin/env bash
# Builds the program as one static file, which runs on any Linux of its architecture: `bash packaging/static.sh [ARCHITECTURE]`, x86_64 or
# aarch64; this machine's unless said. It prints the path of the file. PROFILE=dev takes another profile of Cargo than `dist`.
#
# It needs rustup and a C compiler for musl: on its own architecture `musl-gcc` (Debian: musl-tools), for another one a cross compiler such
# as `aarch64-linux-musl-gcc` in PATH. CC=path takes another compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

machine=$(uname -m)
architecture=${1:-$machine}
target=$architecture-unknown-linux-musl
profile=${PROFILE:-dist}

compiler=${CC:-$architecture-linux-musl-gcc}
if [[ -z ${CC:-} && $architecture == "$machine" ]] && ! command -v "$compiler" >/dev/null; then compiler=musl-gcc; fi
if ! command -v "$compiler" >/dev/null; then
    echo "no C compiler \`$compiler\` for $target: install one (on Debian musl-tools for $machine), or name one in CC" >&2
    exit 1
fi
rustup target list --installed | grep -qx "$target" || rustup target add "$target"

name=${target//-/_}
unset CC
export "CC_$name=$compiler"
# The target comes with all that a program of the machine's own architecture is linked with.
if [[ $architecture != "$machine" ]]; then export "CARGO_TARGET_${name^^}_LINKER=$compiler"; fi
cargo build --locked --profile "$profile" --target "$target" --bin webloom
program=${CARGO_TARGET_DIR:-target}/$target/${profile/#dev/debug}/webloom
if readelf --program-headers "$program" | grep -q INTERP || readelf --dynamic "$program" | grep -q NEEDED; then
    echo "$program needs libraries of the system, so it is not static" >&2
    exit 1
fi
echo "$program"
