#!/usr/bin/env bash
# Builds the program as one static file, which runs on any Linux of its architecture: `bash packaging/static.sh [ARCHITECTURE]`, x86_64 or
# aarch64; this machine's unless said. It prints the path of the file. PROFILE=release takes another profile of Cargo than `dist`.
#
# It needs rustup, Python with venv, and readelf (binutils). The C compiler for both architectures is Zig's, from a wheel, under target/tools.
set -euo pipefail
cd "$(dirname "$0")/.."

architecture=${1:-$(uname -m)}
target=$architecture-unknown-linux-musl
profile=${PROFILE:-dist}
folder=${CARGO_TARGET_DIR:-target}
zig=$folder/tools/zig

case $architecture in
    x86_64 | aarch64) ;;
    *)
        echo "unknown architecture \`$architecture\`: expected x86_64 or aarch64" >&2
        exit 2
        ;;
esac
if ! cmp -s packaging/static.txt "$zig/installed.txt"; then
    rm -rf "$zig"
    python3 -m venv "$zig"
    "$zig/bin/pip" install --quiet --disable-pip-version-check --requirement packaging/static.txt
    cp packaging/static.txt "$zig/installed.txt"
fi
rustup target list --installed | grep -qx "$target" || rustup target add "$target"

PATH=$(realpath "$zig/bin"):$PATH cargo zigbuild --locked --profile "$profile" --target "$target" --bin webloom
program=$folder/$target/${profile/#dev/debug}/webloom
headers=$(readelf --wide --program-headers --dynamic "$program")
if [[ $headers == *@(INTERP|NEEDED)* ]]; then
    echo "$program needs libraries of the system, so it is not static" >&2
    exit 1
fi
echo "$program"
